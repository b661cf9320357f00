"""Tracebacks without the frames of pycoll."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from . import settings
from .user_warnings import OURS

_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"
_HINT = "(without the frames of pycoll: PYCOLL_TRACEBACK=full shows them)\n"


def formatted(error: BaseException) -> str:
    """Format an error, with its causes, as Python does, but without the frames of pycoll.

    With ``PYCOLL_TRACEBACK=full``, or if all frames are of pycoll, nothing is left out.
    """
    whole = "".join(traceback.format_exception(error))
    if settings.TRACEBACK == "full" or not (_outside(error.__traceback__) or isinstance(error, SyntaxError)):
        return whole
    for one in _chain(error, set()):
        one.__traceback__ = _outside(one.__traceback__)
    short = "".join(traceback.format_exception(error))
    return short if short == whole else short + _HINT


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    """Yield an error, those that caused it, and those of a group."""
    if error and id(error) not in seen:
        seen.add(id(error))
        yield error
        for other in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
            yield from _chain(other, seen)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback of the frames that are not of pycoll; None if there are none."""
    frames = [(step.tb_frame, step.tb_lasti, step.tb_lineno) for step in _steps(trace) if not _is_ours(step.tb_frame)]
    found = None
    for frame in reversed(frames):
        found = TracebackType(found, *frame)
    return found


def _steps(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace:
        yield trace
        trace = trace.tb_next


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__")).partition(".")[0]
    return module in (*OURS, "runpy") or frame.f_code.co_filename.startswith(_FOLDER)

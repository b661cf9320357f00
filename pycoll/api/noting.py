"""Functions that note each collective in the roll call of `pycoll.watch`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mpi4py import MPI

from ..base import settings
from ..base.user_warnings import warn
from ..runtime.attach import channels
from ..runtime.recording.roll_call import CALL, ENTERED, SINCE, WAITS, RollCall, now
from ..runtime.recording.steps import identity

_world = MPI.COMM_WORLD


def note_calls(owner: Any, names: Iterable[str], method: bool) -> None:
    """Replace functions; see `pycoll.api.watched.watch`."""
    if _watched():
        for name in names:
            setattr(owner, name, _noting(getattr(owner, name), name, method))


def note_request(kind: Any, method: str) -> None:
    """Replace a method of requests; see `pycoll.api.watched.watch_request`."""
    if _watched():
        noting = _noting_start if method == "Start" else _noting_wait
        setattr(kind, method, noting(getattr(kind, method)))


def _watched() -> bool:
    """Whether calls are noted.  The roll call begins now, or, if MPI is not initialized yet, with the first call."""
    return not MPI.Is_initialized() or _roll() is not None


@functools.cache
def _roll() -> RollCall | None:
    """The roll call of this rank; None if its files cannot be created."""
    try:
        return RollCall(Path(settings.WATCH or ""), _world.rank, _world.size)
    except OSError as error:
        warn(f"PYCOLL_WATCH={settings.WATCH} cannot be used: {error}")
        return None


def _noting(function: Callable[..., Any], name: str, method: bool) -> Callable[..., Any]:
    """Return a function that does the same; what it does besides takes less than a microsecond."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (roll := _roll()) is None:
            return function(*args, **kwargs)
        comm = args[0] if method else kwargs.get("comm") or _world
        try:
            slot = channels[comm.handle].roll_slot
        except (AttributeError, KeyError, TypeError):  # a new communicator, or a wrong argument
            slot = 0
        slot, view = slot or _slot(roll, comm), roll.view
        if view[slot] & 1:  # the call is part of another one
            return function(*args, **kwargs)
        view[slot + CALL] = roll.named(name)
        view[slot + ENTERED] = now()
        view[slot] += 1
        try:
            return function(*args, **kwargs)
        finally:
            view[slot] += 1
            if slot == roll.first:
                _move_first(roll, comm)

    return call


def _slot(roll: RollCall, comm: Any) -> int:
    """The position of a communicator; `first` before its first call is complete."""
    channel = channels.get(getattr(comm, "handle", None))  # type: ignore[arg-type]
    if channel is None:
        return roll.first
    if not channel.roll_slot:
        ident = identity(channel.comm)
        channel.roll_slot = roll.add(ident.name, channel.comm.rank, ident.ranks)
    return channel.roll_slot


def _move_first(roll: RollCall, comm: Any) -> None:
    """Note the first call on a communicator where later calls are noted, now that it is known."""
    slot, view = _slot(roll, comm), roll.view
    if slot != roll.first:
        for field in (CALL, ENTERED):
            view[slot + field] = view[roll.first + field]
        view[slot] += 2


def _noting_start(start: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(start)
    def noting(request: Any) -> None:
        if (roll := _roll()) is None:
            return start(request)
        view, slot = roll.view, _slot_of(roll, request)
        view[slot + CALL] = roll.named(_primitive(request))
        view[slot + ENTERED] = now()
        view[slot] += 1
        try:
            return start(request)
        finally:
            view[slot] += 1

    return noting


def _noting_wait(wait: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(wait)
    def noting(request: Any, status: MPI.Status | None = None) -> bool:
        if (roll := _roll()) is None:
            return wait(request, status)
        view, slot = roll.view, _slot_of(roll, request)
        view[slot + SINCE] = now()
        view[slot + WAITS] = roll.named(_primitive(request))
        try:
            return wait(request, status)
        finally:
            view[slot + WAITS] = 0

    return noting


def _slot_of(roll: RollCall, request: Any) -> int:
    channel = getattr(request, "channel", None)
    return (channel.roll_slot if channel else 0) or roll.first


def _primitive(request: Any) -> str:
    return str(getattr(request, "name", "a collective of MPI")).partition(" on rank")[0]

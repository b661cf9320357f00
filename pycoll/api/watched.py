"""Notes each collective in the roll call of `pycoll.watch`, if ``PYCOLL_WATCH`` is set; otherwise it does nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..base import settings


def watch(owner: Any, names: Iterable[str], method: bool = False) -> None:
    """Replace functions of a module, or methods of a class, by functions that note each call.

    Parameters
    ----------
    owner : module or class
        Where the functions are.
    names : iterable of str
        Their names.
    method : bool, default False
        Whether the first argument is the communicator; otherwise the keyword `comm` is.
    """
    if settings.WATCH:
        from .noting import note_calls

        note_calls(owner, names, method)


def watch_request(kind: Any, method: str) -> None:
    """Replace a method of a class of requests, Start or Wait, by one that notes when it begins and ends."""
    if settings.WATCH:
        from .noting import note_request

        note_request(kind, method)

"""`MPI.Request` and `MPI.Prequest` for ``python -m pycoll.run``: their class methods accept requests of pycoll too.

The classes remain those of mpi4py; calls with requests of mpi4py only go to mpi4py.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from ..runtime.requests import Request as OwnRequest
from .requests import Persistent
from .several_requests import Statuses, is_of_mpi, set_empty, test_all, test_some, wait_for_all, wait_for_some


def _all_of_mpi(requests: Sequence[object]) -> bool:
    return all(map(is_of_mpi, requests))


def _one(status: MPI.Status | None) -> Statuses:
    return None if status is None else [status]


def _method(name: str) -> Callable[..., Any]:
    """The class method of this name for requests of both kinds."""
    native = getattr(MPI.Request, name)
    objects, kind = name[0].islower(), name.lower()

    def waitall(requests: Any, statuses: Statuses = None) -> Any:
        found = wait_for_all(requests, statuses, objects)
        return found if objects else True

    def testall(requests: Any, statuses: Statuses = None) -> Any:
        complete, found = test_all(requests, statuses, objects)
        return (complete, found) if objects else complete

    def waitany(requests: Any, status: MPI.Status | None = None) -> Any:
        some = wait_for_some(name, requests, _one(status), objects, 1)
        if some is None:
            set_empty(status)
        index, value = (some[0][0], some[1][0]) if some else (MPI.UNDEFINED, None)
        return (index, value) if objects else index

    def testany(requests: Any, status: MPI.Status | None = None) -> Any:
        some = test_some(requests, _one(status), objects, 1)
        if some is None:
            set_empty(status)
        found = (some[0][0], True, some[1][0]) if some and some[0] else (MPI.UNDEFINED, some is None, None)
        return found if objects else found[:2]

    def waitsome(requests: Any, statuses: Statuses = None) -> Any:
        some = wait_for_some(name, requests, statuses, objects)
        return (some or (None, None)) if objects else some and some[0]

    def testsome(requests: Any, statuses: Statuses = None) -> Any:
        some = test_some(requests, statuses, objects)
        return (some or (None, None)) if objects else some and some[0]

    chosen = {f.__name__: f for f in (waitall, testall, waitany, testany, waitsome, testsome)}[kind]

    def call(cls: type, requests: Any, *args: Any, **kwargs: Any) -> Any:
        requests = list(requests)
        return (native if _all_of_mpi(requests) else chosen)(requests, *args, **kwargs)

    call.__name__, call.__doc__ = name, native.__doc__
    return call


def _startall(native: Callable[..., None]) -> Callable[..., None]:
    def Startall(cls: type, requests: Sequence[Any]) -> None:
        requests = list(requests)
        if _all_of_mpi(requests):
            return native(requests)
        for request in requests:
            request.Start()

    Startall.__doc__ = native.__doc__
    return Startall


def replace_methods() -> None:
    """Let the class methods accept requests of both kinds, and requests of pycoll be instances of the classes."""
    for name in (start + end for start in ("Wait", "Test", "wait", "test") for end in ("all", "any", "some")):
        _assign(MPI.Request, name, classmethod(_method(name)))
    _assign(MPI.Prequest, "Startall", classmethod(_startall(MPI.Prequest.Startall)))
    _assign(OwnRequest, "__class__", property(lambda _: MPI.Request))  # for isinstance
    _assign(Persistent, "__class__", property(lambda _: MPI.Prequest))


def _assign(kind: type, name: str, value: object) -> None:
    """Assign an attribute of a class for which Python does not allow this: classes of mpi4py are immutable."""
    (attributes,) = gc.get_referents(kind.__dict__)  # `__dict__` is a read-only view of them
    attributes[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

"""`MPI.Request` and `MPI.Prequest` for ``python -m pycoll.run``: their class methods accept requests of pycoll too.

The classes remain those of mpi4py; calls with requests of mpi4py only go to mpi4py.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from ..runtime.progress import progress, until
from .requests import Persistent
from .requests import Request as OwnRequest
from .several_requests import AnyRequest, concerned, is_active, is_complete, is_of_mpi

Statuses = list[MPI.Status] | None


def _all_of_mpi(requests: Sequence[AnyRequest]) -> bool:
    return all(map(is_of_mpi, requests))


def _tested(request: AnyRequest, status: MPI.Status | None, objects: bool) -> tuple[bool, Any]:
    """Test one request; with `objects`, as `test` of mpi4py does."""
    if not is_of_mpi(request):
        if status is not None:
            MPI.REQUEST_NULL.Test(status)  # an empty status
        return request.test()
    return request.test(status) if objects else (request.Test(status), None)


def _of_each(statuses: Statuses, count: int) -> Sequence[MPI.Status | None]:
    """A status for each request; a list that is too short is extended, as in mpi4py."""
    if statuses is None:
        return [None] * count
    statuses.extend(MPI.Status() for _ in range(count - len(statuses)))
    return statuses


def _all(requests: Sequence[AnyRequest], statuses: Statuses, objects: bool) -> list[Any]:
    """Wait for all requests; return their objects."""
    each = _of_each(statuses, len(requests))
    found: list[Any] = [None] * len(requests)
    rest = list(range(len(requests)))

    def done() -> bool:
        for i in list(rest):
            complete, found[i] = _tested(requests[i], each[i], objects)
            if complete:
                rest.remove(i)
        return not rest

    until(done, "Waitall", None, concerned(requests))
    return found


def _some(
    requests: Sequence[AnyRequest], statuses: Statuses, objects: bool, most: int | None = None
) -> tuple[list[int], list[Any]] | None:
    """Test all active requests, until `most` are complete; return their indices and objects, None without any."""
    active = [i for i, request in enumerate(requests) if is_active(request)]
    if not active:
        return None
    each = _of_each(statuses, len(active))
    indices: list[int] = []
    found: list[Any] = []
    for i in active:
        complete, value = _tested(requests[i], each[len(indices)], objects)
        if complete:
            indices.append(i)
            found.append(value)
            if len(indices) == most:
                break
    return indices, found


def _wait_for_some(
    requests: Sequence[AnyRequest], statuses: Statuses, objects: bool, most: int | None = None
) -> tuple[list[int], list[Any]] | None:
    """As `_some`, until at least one request is complete."""
    outcome: list[tuple[list[int], list[Any]] | None] = []

    def done() -> bool:
        outcome[:] = [_some(requests, statuses, objects, most)]
        return outcome[0] is None or bool(outcome[0][0])

    until(done, "Waitsome" if most is None else "Waitany", None, concerned(requests))
    return outcome[0]


def _testall(requests: Sequence[AnyRequest], statuses: Statuses, objects: bool) -> tuple[bool, list[Any] | None]:
    progress()
    if not all(map(is_complete, requests)):
        return False, None
    return True, _all(requests, statuses, objects)


def _empty(status: MPI.Status | None) -> None:
    if status is not None:
        MPI.REQUEST_NULL.Test(status)


def _one(status: MPI.Status | None) -> Statuses:
    return None if status is None else [status]


def _method(name: str) -> Callable[..., Any]:
    """The class method of this name for requests of both kinds."""
    native = getattr(MPI.Request, name)
    objects, kind = name[0].islower(), name.lower()

    def waitall(requests: Any, statuses: Statuses = None) -> Any:
        found = _all(requests, statuses, objects)
        return found if objects else True

    def testall(requests: Any, statuses: Statuses = None) -> Any:
        complete, found = _testall(requests, statuses, objects)
        return (complete, found) if objects else complete

    def waitany(requests: Any, status: MPI.Status | None = None) -> Any:
        some = _wait_for_some(requests, _one(status), objects, 1)
        if some is None:
            _empty(status)
        index, value = (some[0][0], some[1][0]) if some else (MPI.UNDEFINED, None)
        return (index, value) if objects else index

    def testany(requests: Any, status: MPI.Status | None = None) -> Any:
        progress()
        some = _some(requests, _one(status), objects, 1)
        if some is None:
            _empty(status)
        found = (some[0][0], True, some[1][0]) if some and some[0] else (MPI.UNDEFINED, some is None, None)
        return found if objects else found[:2]

    def waitsome(requests: Any, statuses: Statuses = None) -> Any:
        some = _wait_for_some(requests, statuses, objects)
        return (some or (None, None)) if objects else some and some[0]

    def testsome(requests: Any, statuses: Statuses = None) -> Any:
        progress()
        some = _some(requests, statuses, objects)
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

"""Start several requests, test them, or wait for them: requests of pycoll and of MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from mpi4py import MPI

from ..runtime import progress
from ..runtime.failures import TOLERANT
from ..runtime.requests import Request
from .pointtopoint import awaited, check_length
from .requests import Persistent

AnyRequest = Request | Persistent | MPI.Request
Status = MPI.Status | None
Statuses = list[MPI.Status] | None


def is_of_mpi(request: object) -> TypeGuard[MPI.Request]:
    """Whether a request is one of mpi4py; under `python -m pycoll.run`, `isinstance` accepts those of pycoll too."""
    return issubclass(type(request), MPI.Request)


def waitall(requests: Sequence[AnyRequest]) -> list[Any]:
    """Wait for all requests, of collectives and of messages.

    Parameters
    ----------
    requests : sequence of Request, Persistent or MPI.Request
        The requests to wait for.

    Returns
    -------
    list
        The result of `wait` for each request.

    Raises
    ------
    CollectiveTimeout
        If a request takes longer than ``PYCOLL_TIMEOUT``.
    """
    return wait_for_all(requests)


def waitany(requests: Sequence[AnyRequest]) -> tuple[int, Any]:
    """Wait for one of several requests, of collectives and of messages.

    Parameters
    ----------
    requests : sequence of Request, Persistent or MPI.Request
        The requests to wait for.  Inactive ones, whose completion was already reported, are skipped.

    Returns
    -------
    int
        The index of the completed request; MPI.UNDEFINED if all are inactive.
    object
        The result of its `wait`; None if all are inactive.

    Raises
    ------
    CollectiveTimeout
        If no request completes within ``PYCOLL_TIMEOUT``.
    """
    found = wait_for_some("waitany", requests, most=1)
    return (found[0][0], found[1][0]) if found else (MPI.UNDEFINED, None)


def testall(requests: Sequence[AnyRequest]) -> tuple[bool, list[Any] | None]:
    """Test whether all requests, of collectives and of messages, are complete.

    Parameters
    ----------
    requests : sequence of Request, Persistent or MPI.Request
        The requests to test.

    Returns
    -------
    bool
        True if all requests are complete.
    list or None
        The result of `wait` for each request if all are complete.
    """
    return test_all(requests)


def testany(requests: Sequence[AnyRequest]) -> tuple[int, bool, Any]:
    """Test whether one of several requests, of collectives and of messages, is complete.

    Parameters
    ----------
    requests : sequence of Request, Persistent or MPI.Request
        The requests to test.  Inactive ones, whose completion was already reported, are skipped.

    Returns
    -------
    int
        The index of the completed request; MPI.UNDEFINED if none is complete, or if all are inactive.
    bool
        True if a request is complete, or if all are inactive.
    object
        The result of its `wait`; None if no request is complete.
    """
    found = test_some(requests, most=1)
    if not found or not found[0]:
        return MPI.UNDEFINED, found is None, None
    return found[0][0], True, found[1][0]


def startall(requests: Sequence[Persistent | MPI.Prequest]) -> None:
    """Start all persistent requests, of collectives and of messages.

    Parameters
    ----------
    requests : sequence of Persistent or MPI.Prequest
        The requests to start, in this order.

    Raises
    ------
    RuntimeError
        If a collective is still active, or freed.
    """
    for request in requests:
        request.Start()


def is_complete(request: AnyRequest) -> bool:
    """Whether a request is complete; it stays as it is, except that with ULFM a complete message may be released.

    In Open MPI, only MPI_Test notices that a message will not come because a rank has failed.
    """
    return bool(request.Get_status()) or (TOLERANT and is_of_mpi(request) and request.Test())


def is_active(request: Any) -> bool:
    """Whether the completion of a request has not been reported yet."""
    return bool(request != MPI.REQUEST_NULL if is_of_mpi(request) else request.active)


def wait_for_all(requests: Sequence[AnyRequest], statuses: Statuses = None, objects: bool = True) -> list[Any]:
    """Wait for all requests; return their objects."""
    each = _of_each(statuses, len(requests))
    return [_wait(request, index, len(requests), each[index], objects) for index, request in enumerate(requests)]


def test_all(
    requests: Sequence[AnyRequest], statuses: Statuses = None, objects: bool = True
) -> tuple[bool, list[Any] | None]:
    """Return whether all requests are complete, and then their objects; until then, none of them is completed."""
    progress.progress()
    if not all(map(is_complete, requests)):
        return False, None
    return True, wait_for_all(requests, statuses, objects)


def test_some(
    requests: Sequence[AnyRequest], statuses: Statuses = None, objects: bool = True, most: int | None = None
) -> tuple[list[int], list[Any]] | None:
    """Test all active requests, until `most` are complete; return their indices and objects, None without any."""
    progress.progress()
    return _complete(requests, statuses, objects, most)


def _complete(
    requests: Sequence[AnyRequest], statuses: Statuses, objects: bool, most: int | None
) -> tuple[list[int], list[Any]] | None:
    active = [i for i, request in enumerate(requests) if is_active(request)]
    if not active:
        return None
    each = _of_each(statuses, len(active))
    indices: list[int] = []
    found: list[Any] = []
    for i in active:
        complete, value = _tested(requests[i], i, each[len(indices)], objects)
        if complete:
            indices.append(i)
            found.append(value)
            if len(indices) == most:
                break
    return indices, found


def wait_for_some(
    what: str, requests: Sequence[AnyRequest], statuses: Statuses = None, objects: bool = True, most: int | None = None
) -> tuple[list[int], list[Any]] | None:
    """As `test_some`, until at least one request is complete; a timeout names the call `what`."""
    outcome: list[tuple[list[int], list[Any]] | None] = []

    def done() -> bool:
        outcome[:] = [_complete(requests, statuses, objects, most)]
        return outcome[0] is None or bool(outcome[0][0])

    def state() -> str:
        messages = [request for request in requests if is_of_mpi(request) and is_active(request)]
        return f"it waits for {' or '.join(map(awaited, messages))}"

    collectives: list[Any] = [request for request in requests if not is_of_mpi(request) and is_active(request)]
    progress.until(done, what, state, collectives)  # these are named by a timeout
    return outcome[0]


def _wait(request: AnyRequest, index: int, count: int, status: Status, objects: bool) -> Any:
    if not is_of_mpi(request):
        if not hasattr(request, "wait"):
            raise TypeError(f"requests[{index}] must be a request, not {request!r}")
        set_empty(status)
        return request.wait()
    outcome: list[tuple[bool, Any]] = [(False, None)]

    def done() -> bool:
        outcome[0] = _tested(request, index, status, objects)
        return outcome[0][0]

    progress.until(done, "waitall", lambda: f"it waits for {awaited(request)} (request {index} of {count})")
    return outcome[0][1]


def _tested(request: AnyRequest, index: int, status: Status, objects: bool) -> tuple[bool, Any]:
    """Test one request, with `objects` as `test` of mpi4py; TruncatedMessage if its message is too long for it."""
    if not is_of_mpi(request):
        set_empty(status)
        return request.test()
    try:
        return request.test(status) if objects else (request.Test(status), None)
    except MPI.Exception as error:
        check_length(error, f"the buffer of requests[{index}]")
        raise


def _of_each(statuses: Statuses, count: int) -> Sequence[Status]:
    """A status for each request; a list that is too short is extended, as in mpi4py."""
    if statuses is None:
        return [None] * count
    statuses.extend(MPI.Status() for _ in range(count - len(statuses)))
    return statuses


def set_empty(status: Status) -> None:
    """Set a status as MPI does for a request that is no message."""
    if status is not None:
        MPI.REQUEST_NULL.Test(status)

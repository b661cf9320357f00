"""Start several requests, test them, or wait for them: requests of pycoll and of MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from mpi4py import MPI

from ..runtime import progress
from ..runtime.failures import TOLERANT
from ..runtime.requests import Request
from .pointtopoint import DeviceMessageRequest, awaited, check_length
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
    active = False
    indices: list[int] = []
    found: list[Any] = []
    for i, request in enumerate(requests):
        status = _status(statuses, len(indices))
        tested = _tested(request, i, status, objects)
        active = active or tested is not None
        if not tested or not tested[0]:
            continue
        if statuses is not None and status is not None and len(indices) == len(statuses):
            statuses.append(status)
        indices.append(i)
        found.append(tested[1])
        if len(indices) == most:
            break
    return (indices, found) if active else None


def wait_for_some(
    what: str, requests: Sequence[Any], statuses: Statuses = None, objects: bool = True, most: int | None = None
) -> tuple[list[int], list[Any]] | None:
    """As `test_some`, until at least one request is complete; a timeout names the call `what`."""
    outcome: list[tuple[list[int], list[Any]] | None] = []

    def done() -> bool:
        outcome[:] = [_complete(requests, statuses, objects, most)]
        return outcome[0] is None or bool(outcome[0][0])

    def state() -> str:
        messages = [request for request in requests if is_of_mpi(request) and not request.Get_status()]
        return f"it waits for {' or '.join(map(awaited, messages))}"

    collectives: list[Any] = [request for request in requests if not is_of_mpi(request) and request.active]
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
        outcome[0] = _tested(request, index, status, objects) or (True, None)
        return outcome[0][0]

    progress.until(done, "waitall", lambda: f"it waits for {awaited(request)} (request {index} of {count})")
    return outcome[0][1]


def _tested(request: Any, index: int, status: Status, objects: bool) -> tuple[bool, Any] | None:
    """Test one request, with `objects` as `test` of mpi4py; None if it is inactive: its completion was reported before.

    It raises TruncatedMessage if a message is too long for its buffer.
    """
    if not is_of_mpi(request):
        set_empty(status)
        return request.test() if request.active else None
    try:
        if isinstance(request, DeviceMessageRequest):
            return request.test(status) if request != MPI.REQUEST_NULL else None
        # of the functions of MPI, only this one tells an inactive persistent request from a complete one
        test = MPI.Request.testany if objects else MPI.Request.Testany
        place, complete, *value = test([request], status)
        return None if complete and place == MPI.UNDEFINED else (complete, value[0] if value else None)
    except MPI.Exception as error:
        check_length(error, f"the buffer of requests[{index}]")
        raise


def _of_each(statuses: Statuses, count: int) -> Sequence[Status]:
    """A status for each request; a list that is too short is extended, as in mpi4py."""
    if statuses is not None:
        statuses.extend(MPI.Status() for _ in range(count - len(statuses)))
    return [_status(statuses, index) for index in range(count)]


def _status(statuses: Statuses, index: int) -> Status:
    """The status at an index, or a new one if the list is too short."""
    if statuses is None:
        return None
    return statuses[index] if index < len(statuses) else MPI.Status()


def set_empty(status: Status) -> None:
    """Set a status as MPI does for a request that is no message."""
    if status is not None:
        MPI.REQUEST_NULL.Test(status)

"""Start several requests, test them, or wait for them: requests of pycoll and of MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from mpi4py import MPI

from ..runtime import progress
from ..runtime.failures import TOLERANT
from .pointtopoint import awaited, check_length
from .requests import Persistent, Request

AnyRequest = Request | Persistent | MPI.Request


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
    return [_wait(request, index, len(requests)) for index, request in enumerate(requests)]


def _wait(request: AnyRequest, index: int, count: int) -> Any:
    if not is_of_mpi(request):
        if not hasattr(request, "wait"):
            raise TypeError(f"requests[{index}] must be a request, not {request!r}")
        return request.wait()
    outcome: list[tuple[bool, Any]] = [(False, None)]

    def done() -> bool:
        outcome[0] = _tested(request, index)
        return outcome[0][0]

    progress.until(done, "waitall", lambda: f"it waits for {awaited(request)} (request {index} of {count})")
    return outcome[0][1]


def _tested(request: AnyRequest, index: int) -> tuple[bool, Any]:
    """The result of `test`; TruncatedMessage if a message is too long for its buffer."""
    try:
        return request.test()
    except MPI.Exception as error:
        if is_of_mpi(request):
            check_length(error, f"the buffer of requests[{index}]")
        raise


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
    found: list[tuple[int, Any]] = []
    waiting = [(i, request) for i, request in enumerate(requests) if is_active(request)]

    def done() -> bool:
        for i, request in waiting:
            complete, result = _tested(request, i)
            if complete:
                found.append((i, result))
                break
        return bool(found)

    if not waiting:
        return MPI.UNDEFINED, None
    messages = [request for _, request in waiting if is_of_mpi(request)]
    progress.until(done, "waitany", lambda: f"it waits for {' or '.join(map(awaited, messages))}", concerned(requests))
    return found[0]


def concerned(requests: Sequence[Any]) -> list[Any]:
    """The collectives in flight among active requests, which a timeout names."""
    return [request.task for request in requests if not is_of_mpi(request) and request.active]


def is_complete(request: AnyRequest) -> bool:
    """Whether a request is complete; it stays as it is, except that with ULFM a complete message may be released.

    In Open MPI, only MPI_Test notices that a message will not come because a rank has failed.
    """
    return bool(request.Get_status()) or (TOLERANT and is_of_mpi(request) and request.Test())


def is_active(request: Any) -> bool:
    """Whether the completion of a request has not been reported yet."""
    return bool(request != MPI.REQUEST_NULL if is_of_mpi(request) else request.active)


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
    progress.progress()
    for request in requests:
        if not is_complete(request):
            return False, None
    return True, [_tested(request, i)[1] for i, request in enumerate(requests)]


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
    active = [(i, request) for i, request in enumerate(requests) if is_active(request)]
    for i, request in active:
        complete, result = _tested(request, i)
        if complete:
            return i, True, result
    return MPI.UNDEFINED, not active, None


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

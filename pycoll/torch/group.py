"""What all groups have beside their collectives: their works in flight, their timeouts, and their end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from mpi4py import MPI
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import record_function

import pycoll
from pycoll.trace import under_way

from .work import All, Futures, Work, all_tensors, drain, leave

Method = Callable[..., Work]


def collective(what: str) -> Callable[[Method], Method]:
    """Name the collective of a method, for traces, and for torch.profiler until it is complete."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Group, *args: Any, **kwargs: Any) -> Work:
            if self._what:  # it is called by another method
                return method(self, *args, **kwargs)
            self._what = what
            try:
                if not torch.autograd._profiler_enabled():
                    return method(self, *args, **kwargs)
                with record_function(f"pycoll:{what}", self._label) as self._event:
                    return method(self, *args, **kwargs)
            finally:
                self._what, self._event = "", None

        return call

    return decorate


class Group:
    """A group without collectives.

    Names and arguments of public methods are those of torch, which calls them also from C++.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        The communicator; its ranks are the ranks of the group.
    """

    supports_splitting, supports_coalescing = True, False

    def __init__(self, comm: MPI.Intracomm, seconds: float) -> None:
        self.comm = comm
        self._channel, self._seconds = pycoll.attach(comm), seconds
        self._label = "group"  # in traces
        self._coalesced: list[Work] | None = None
        self._count = 0  # of collectives
        self._what = ""  # the collective that a method of this class starts
        self._event: record_function | None = None  # of torch.profiler
        self._futures = Futures()

    def work(self, opts: Any, request: Any, tensors: Sequence[Any] = (), after: Sequence[Any] = ()) -> Work:
        """Return the work for a request, or for a list of them; complete, if the caller waits anyway.

        Only collectives have options; `self._what` is theirs, while another thread may send a message.
        """
        requests = request if isinstance(request, list) else [request]
        if opts is not None:
            self._count += 1
            after = [*after, under_way(f"{self._label}: {self._what}")]
            for each in requests:
                each.set_timeout(self.seconds(opts))
            if self._event:
                self._describe(tensors)
                complete = torch.futures.Future()
                self._event._call_end_callbacks_on_future(complete)
                after = [*after, lambda: complete.set_result(None)]
        request = requests[0] if len(requests) == 1 else All(requests)
        work = Work(request, tensors, after, self._futures)
        if opts is None or opts.asyncOp:
            leave(work)
            if self._coalesced is not None:
                self._coalesced.append(work)
        else:
            work.finish()
        return work

    def _describe(self, tensors: Sequence[Any]) -> None:
        """Tell torch.profiler the group, and the tensors of the result, in an event that begins and ends here."""
        found = all_tensors(tensors)
        nbytes = sum(tensor.numel() * tensor.itemsize for tensor in found)
        with _RecordFunctionFast(f"pycoll:{self._what}:start", found, {"bytes": nbytes, "group": self._label}):
            pass

    def seconds(self, opts: Any) -> float:
        """Return the timeout of a collective: that of its options, or of the group."""
        seconds = float(opts.timeout.total_seconds())
        return seconds if seconds > 0 else self._seconds

    def start_coalescing(self) -> None:
        """Combine the works of the next calls."""
        self._coalesced = []

    def end_coalescing(self) -> Work:
        """Return the combined work."""
        works, self._coalesced = self._coalesced or [], None
        return self.work(None, All([_Finished(work) for work in works]))

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time after which a collective or a message raises CollectiveTimeout."""
        self._seconds = timeout.total_seconds()

    def shutdown(self) -> None:
        """Wait for the works in flight, and free the communicator."""
        drain(self._futures)
        self._futures.close()
        if not self._channel.broken and not MPI.Is_finalized() and self.comm != MPI.COMM_NULL:
            self.comm.Free()

    def abort(self) -> None:
        """Make the group unusable; its messages in flight are left alone."""
        self._channel.abandon(RuntimeError(f"the process group {self._label} was aborted"))

    def getBackendName(self) -> str:
        """Return "pycoll"."""
        return "pycoll"

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: the numbers start at 0."""

    def _get_sequence_number_for_group(self) -> int:
        return int(self._count)


class _Finished:
    """A work as a request, for works that are combined."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def set_timeout(self, seconds: float) -> None:
        """Do nothing: the work has its own timeout."""

    def Test(self) -> bool:
        return self._work.is_completed() and self._work.wait()

    def Wait(self) -> None:
        self._work.wait()

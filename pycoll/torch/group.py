"""What makes a process group one of torch.distributed: its names, its store, its works in flight, and its end."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from mpi4py import MPI
from torch._C import _distributed_c10d as c10d
from torch.autograd.profiler import record_function

import pycoll
from pycoll.trace import under_way

from .work import All, Futures, Work, drain, leave

Method = Callable[..., Work]


class _Backend(c10d.Backend):
    """What the hooks of torch 2.15 know of a group."""

    def getBackendName(self) -> str:
        """Return "pycoll"."""
        return "pycoll"


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


class Group(c10d.ProcessGroup):
    """A process group without collectives.

    Names and arguments of methods are those of the base class, which PyTorch calls also from C++.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        The communicator; its ranks are the ranks of the group.
    """

    def __init__(self, store: Any, comm: MPI.Intracomm, seconds: float) -> None:
        super().__init__(comm.rank, comm.size)
        self.comm, self._store = comm, store
        self._channel, self._seconds = pycoll.attach(comm), seconds
        self._name, self._description = "", "undefined"
        self._label = "group"  # in traces
        if torch.__version__ >= "2.15":  # its hooks want a backend; the methods of this class do not call it
            kind = c10d.ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(kind)
            for device in self._device_types:
                self._register_backend(device, kind, _Backend(comm.rank, comm.size))
        self._coalesced: list[Work] | None = None
        self._count = 0  # of collectives
        self._what = ""  # the collective that a method of this class starts
        self._event: record_function | None = None  # of torch.profiler
        self._futures = Futures()

    def work(self, opts: Any, request: Any, tensors: Sequence[Any] = (), after: Sequence[Any] = ()) -> Work:
        """Return the work for a request, or for a list of them; complete, if the caller waits anyway."""
        requests = request if isinstance(request, list) else [request]
        if self._what:
            self._count += 1
            after = [*after, under_way(f"{self._label}: {self._what}")]
            for each in requests:
                each.set_timeout(self.seconds(opts))
        if self._event:
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

    def seconds(self, opts: Any) -> float:
        """Return the timeout of a collective: that of its options, or of the group."""
        seconds = float(opts.timeout.total_seconds())
        return seconds if seconds > 0 else self._seconds

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return self.work(None, All([_Finished(work) for work in works]))

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> Group | None:
        """Return a group of some ranks of this one; None on the other ranks, which need not call this."""
        if self.rank() not in new_ranks:
            return None
        name = group_name or f"{self._name}:{','.join(map(str, new_ranks))}"
        comm = create_comm(self.comm, new_ranks, name)
        store = c10d.PrefixStore(f"{name}/", self.get_group_store())
        group = type(self)(store, comm, timeout.total_seconds() if timeout else self._seconds)
        group.setGroupName(name)
        group.setGroupDesc(group_desc or "undefined")
        return group

    def get_group_store(self) -> Any:
        """Return the store of the group."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time after which a collective or a message raises CollectiveTimeout."""
        self._seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Wait for the works in flight, and free the communicator."""
        drain(self._futures)
        self._futures.close()
        if not self._channel.broken and not MPI.Is_finalized():
            self.comm.Free()

    def abort(self) -> None:
        """Make the group unusable; its messages in flight are left alone."""
        self._channel.abandon(RuntimeError(f"the process group {self._name} was aborted"))

    def getBackendName(self) -> str:
        """Return "pycoll"."""
        return "pycoll"

    def getGroupName(self) -> str:
        """Return the name that torch.distributed gave to the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Set the name."""
        self._name = name

    def getGroupDesc(self) -> str:
        """Return the description."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Set the description."""
        self._description = description
        self._label = self._name if description == "undefined" else description

    @property
    def _device_types(self) -> list[torch.device]:
        cuda = [torch.device("cuda")] if torch.cuda.is_available() else []
        return [torch.device("cpu"), *cuda]

    def _get_backend(self, device: torch.device) -> Group:
        return self

    supports_splitting = True
    supports_coalescing = False
    options = None

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: the numbers start at 0."""

    def _get_sequence_number_for_group(self) -> int:
        return int(self._count)


def create_comm(parent: MPI.Intracomm, ranks: Sequence[int], name: str) -> MPI.Intracomm:
    """Return a communicator of some ranks of another one, which all of them and nobody else call together."""
    group = parent.group.Incl(ranks)
    comm = parent.Create_group(group, zlib.crc32(name.encode()) % 32768)  # a tag that MPI guarantees
    group.Free()
    return comm


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

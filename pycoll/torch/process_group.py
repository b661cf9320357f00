"""What torch.distributed gets from pycoll: a whole process group, or a backend of a group with several."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import DebugLevel, get_debug_level

from pycoll.base.mpi import MPI

from .children import check_rank
from .collectives import Collectives
from .work import Work


class ProcessGroup(Collectives, c10d.ProcessGroup):
    """A process group whose collectives are those of pycoll.

    torch calls its methods directly, and returns their works.
    """

    options = None

    def __init__(self, comm: MPI.Intracomm, seconds: float, store: Any) -> None:
        c10d.ProcessGroup.__init__(self, comm.rank, comm.size)
        super().__init__(comm, seconds)
        self._store, self._name, self._description = store, "", "undefined"
        if torch.__version__ >= "2.15":  # its hooks want a backend; the methods of this class do not call it
            kind = c10d.ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(kind)
            backend = Backend(comm, seconds, "")
            for device in self._device_types:
                self._register_backend(device, kind, backend)

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:
        """Return a group of some ranks of this one; None on the other ranks, which need not call this."""
        if self.rank() not in new_ranks:
            return None
        name = group_name or f"{self._name}:{','.join(map(str, new_ranks))}"
        comm = create_comm(self.comm, new_ranks, name)
        seconds = timeout.total_seconds() if timeout else self._seconds
        group = ProcessGroup(comm, seconds, c10d.PrefixStore(f"{name}/", self.get_group_store()))
        group.setGroupName(name)
        group.setGroupDesc(group_desc or "undefined")
        return group

    def get_group_store(self) -> Any:
        """Return the store of the group."""
        return self._store

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

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _start_coalescing(self, device: torch.device) -> None:
        self.start_coalescing()

    def _end_coalescing(self, device: torch.device) -> Work:
        return self.end_coalescing()


class Backend(Collectives, c10d.Backend):
    """The collectives of a process group for some devices; backends can be written in Python since torch 2.15."""

    def __init__(self, comm: MPI.Intracomm, seconds: float, name: str) -> None:
        c10d.Backend.__init__(self, comm.rank, comm.size)
        super().__init__(comm, seconds)
        self._label = name

    @property
    def options(self) -> Any:
        """Return what torch passes to `split`."""
        return c10d.Backend.Options("pycoll", timedelta(seconds=self._seconds))

    def split(self, store: Any, ranks: Sequence[int], options: Any) -> Backend:
        """Return the backend of some ranks, which call this together."""
        if self.comm.rank not in ranks:
            raise RuntimeError(f"split: rank {self.comm.rank} is not in ranks={list(ranks)}, so it must not call this")
        return Backend(create_comm(self.comm, ranks, options.group_name), self._seconds, options.group_name)

    def shutdown(self) -> None:
        """Wait for the works in flight, and free the communicator."""
        super().shutdown()
        _in_use.discard(self)


_in_use: set[Backend] = set()  # because torch drops the Python objects of those that it wraps for debugging


def create(options: Any, backend_options: Any) -> ProcessGroup | Backend:
    """Create a process group, or a backend of one; torch.distributed calls this on the members of the group only."""
    check_rank()
    world = MPI.Intracomm(MPI.COMM_WORLD)
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    here = ranks[options.group_rank] if options.group_rank < len(ranks) else options.group_rank
    if options.group_size > world.size or options.group_rank >= len(ranks) or here != world.rank:
        raise RuntimeError(
            f"this process has rank {here} of {max(options.group_size, max(ranks) + 1)} in torch.distributed, but rank "
            f"{world.rank} of {world.size} in MPI; start the program with `mpiexec -n RANKS python PROGRAM` or srun, "
            "not with torchrun or torch.multiprocessing, and without RANK and WORLD_SIZE in the environment"
        )
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError("pycoll.torch needs MPI_THREAD_MULTIPLE, but MPI was initialized with a lower level")
    comm = create_comm(world, ranks, options.group_id)
    seconds = options.timeout.total_seconds()
    if not _takes_backend(getattr(options, "process_group", None)):
        return ProcessGroup(comm, seconds, options.store)
    backend = Backend(comm, seconds, options.group_id)
    _in_use.add(backend)
    return backend


def backend_of(group: Any) -> ProcessGroup | Backend | None:
    """What pycoll created for a process group; None if that has other backends only."""
    if isinstance(group, ProcessGroup):
        return group
    if not isinstance(group, c10d.ProcessGroup):
        return None
    backends = (group._get_backend(device) for device in group._device_types)
    inner = (getattr(backend, "wrapped_pg", backend) for backend in backends)  # of TORCH_DISTRIBUTED_DEBUG=DETAIL
    return next((backend for backend in inner if isinstance(backend, Backend)), None)


def _takes_backend(group: Any) -> bool:
    """Whether a new process group of torch should get a backend.

    It must if it has other backends, too.  Tools of torch for debugging see the collectives of backends only.  But
    torch calls backends through C++, which takes longer, and whose works do not tell whether they are complete.
    """
    if group is None:  # before torch 2.15
        return False
    debugged = get_debug_level() == DebugLevel.DETAIL or os.environ.get("TORCH_FR_BUFFER_SIZE", "0") != "0"
    return debugged or bool(group._device_types) or group.name() != "custom"


def create_comm(parent: MPI.Intracomm, ranks: Sequence[int], name: str) -> MPI.Intracomm:
    """Return a communicator of some ranks of another one, which all of them and nobody else call together."""
    group = parent.group.Incl(ranks)
    comm = parent.Create_group(group, zlib.crc32(name.encode()) % 32768)  # a tag that MPI guarantees
    group.Free()
    return comm

"""What is measured: a collective's buffers, pycoll's call and MPI's own on the same input.

Buffers are NumPy's or CuPy's.  On a GPU there are two yardsticks: MPI's own collective on these buffers, if MPI is
CUDA-aware, and what users do if it is not: copy to the host, call MPI, copy back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.cuda.copies import pinned
from pycoll.schedule import PRIMITIVES

MEASURED = [name for name, primitive in PRIMITIVES.items() if not primitive.varies]
NATIVE = {name: name.capitalize() for name in PRIMITIVES} | {"reduce_scatter": "Reduce_scatter_block"}
FORMS = {"blocking": "{}", "nonblocking": "i{}", "persistent": "{}_init"}  # and what pycoll calls them
IN_PLACE = ("allgather", "allreduce", "alltoall", "reduce_scatter", "scan")  # where every rank can work in place


def busbw_factor(primitive: str, size: int) -> float:
    """What algbw is multiplied with to get bus bandwidth, as nccl-tests defines it; it has no scans."""
    share = (size - 1) / size
    return {"bcast": 1.0, "reduce": 1.0, "scan": 1.0, "exscan": 1.0, "barrier": 0.0, "allreduce": 2 * share}.get(
        primitive, share
    )


class Case:
    """One collective on buffers of about `nbytes` bytes in all (one rank's block is a size-th of them)."""

    def __init__(
        self, comm: MPI.Intracomm, primitive: str, nbytes: int, dtype: np.dtype, in_place: bool, xp: Any = np
    ) -> None:
        self.comm, self.primitive, self.dtype, self.in_place, self.xp = comm, primitive, dtype, in_place, xp
        shape = PRIMITIVES[primitive]
        rank, size = comm.rank, comm.size
        self.count = self.nbytes = 0
        self.send = self.ours = self.native = None
        if primitive == "barrier":
            return
        total = max(1, nbytes // dtype.itemsize)
        self.count = total if shape.cuts else max(1, total // size)
        self.nbytes = self.count * dtype.itemsize * (1 if shape.cuts else size)

        def room(wanted: object, all_blocks: bool) -> Any:
            return xp.zeros(self.count * (size if all_blocks else 1), dtype) if wanted else None

        self.send = room(shape.holds(rank, size, 0, 1), shape.takes_all)
        inside = in_place and shape.takes_all and not shape.gives_all  # the input of reduce_scatter
        gets = shape.wants(rank, size, 0, 1) or primitive == "exscan"  # whose rank 0 has a buffer that stays as it is
        self.ours = room(gets, shape.gives_all or inside)
        self.native = None if self.ours is None else self.ours.copy()
        if primitive == "bcast" and rank == 0:
            self.send = None

    def fill(self) -> None:
        """Fill the buffers with whole numbers, so that sums are the same in any order."""
        random = np.random.default_rng(self.comm.rank)
        for array in (self.send, self.ours):
            if array is not None:
                array[...] = self.xp.asarray(random.integers(0, 9, array.size).astype(self.dtype))
        if self.native is not None:
            self.native[...] = self.ours

    def zero(self) -> None:
        """Set everything to zero, so that repeated reductions in place stay finite."""
        for array in (self.send, self.ours, self.native):
            if array is not None:
                array[...] = 0

    def _arguments(self, send: Any, recv: Any) -> tuple:
        if self.primitive == "barrier":
            return ()
        if self.primitive == "bcast":
            return (recv,)
        return (MPI.IN_PLACE if self.in_place else send, recv)

    def call(self, algorithm: str | None, form: str = "blocking") -> Callable[[], object]:
        """The collective by one of pycoll's algorithms (None: the one that pycoll would choose), in one of `FORMS`."""
        function = getattr(pycoll, FORMS[form].format(self.primitive))
        given = partial(function, *self._arguments(self.send, self.ours), comm=self.comm, algorithm=algorithm)
        if form == "blocking":
            return given
        if form == "nonblocking":
            return lambda: given().Wait()
        persistent = given()

        def start_and_wait() -> None:
            persistent.Start()
            persistent.Wait()

        return start_and_wait

    def call_native(self) -> Callable[[], object]:
        """MPI's own collective on the same input."""
        return self._native_on(self.send, self.native)

    def _native_on(self, send: Any, recv: Any) -> Callable[[], object]:
        function = getattr(self.comm, NATIVE[self.primitive])
        return partial(function, *self._arguments(send, recv))

    def call_staged(self) -> Callable[[], object]:
        """The same by way of pinned memory of the host's: copied there, MPI's own collective, copied back."""
        hosts = [None if array is None else pinned(array.nbytes).view(self.dtype) for array in (self.send, self.native)]
        collective = self._native_on(*hosts)

        def copy_call_copy() -> None:
            for array, host in zip((self.send, self.native), hosts):
                if array is not None:
                    array.get(out=host)
            collective()
            if self.native is not None:
                self.native.set(hosts[1])
                self.xp.cuda.get_current_stream().synchronize()

        return copy_call_copy

    def wrong(self, call: Callable[[], object], other: Callable[[], object]) -> int:
        """Run two; how many elements differ, over all ranks."""
        self.fill()
        call()
        other()
        different = 0
        if self.ours is not None:
            different = int(np.count_nonzero(self._result(self.ours) != self._result(self.native)))
        return self.comm.allreduce(different)

    def _result(self, array: Any) -> np.ndarray:
        shape = PRIMITIVES[self.primitive]
        array = array if self.xp is np else array.get()
        return array if shape.cuts or shape.gives_all else array[: self.count]

"""Buckets: gradients that are sent together, as one flat vector.

See Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.primitives import names
from pycoll.trace import under_way

from ..base.numbers import check_positive
from .flat import Array, Arrays, FlatLayout, by_dtype, check_in_place, empty, shared_empty


class Bucket:
    """Gradients of one dtype in a flat vector, which a hook replaces with its average over the ranks.

    Attributes
    ----------
    index : int
        The number of the bucket, the same on all ranks.
    vector : array
        The gradients, with one axis.
    views : dict of str to array
        Views of the gradients by the names of their parameters.
    comm : mpi4py.MPI.Intracomm
        The communicator.
    state : dict of str to array
        Arrays that a hook keeps from step to step, with the shape of `vector`.  Checkpoints save them.
    """

    def __init__(
        self,
        index: int,
        arrays: Arrays,
        comm: MPI.Comm,
        algorithm: names.Allreduce | None,
        wire: np.dtype | None = None,
    ) -> None:
        layout = FlatLayout(arrays)
        self.index, self.comm = index, comm
        self.vector = shared_empty(next(iter(arrays.values())), layout.size, None, comm)
        self.views = layout.views(self.vector)
        self.state: dict[str, Array] = {}
        self.missing = set(self.views)  # parameters without a gradient in this step yet
        self._algorithm = algorithm
        self._reduction: pycoll.Persistent | None = None
        self._reduced: Array = None
        self._hook: Iterator[Any] = iter(())
        self._awaited: list[Any] = []
        # only here do all ranks allocate together; a hook may run while other ranks still compute
        self._wires = {} if wire is None else {wire: shared_empty(self.vector, layout.size, wire, comm)}

    def wire(self, dtype: np.dtype) -> Array:
        """Return a buffer for the gradients in another dtype, the same buffer in each step."""
        if dtype not in self._wires:
            self._wires[dtype] = empty(self.vector, len(self.vector), dtype)
        return self._wires[dtype]

    def allreduce(self, vector: Array, op: Any) -> pycoll.Persistent:
        """Start an all-reduce of `vector` in place.

        Pass the same array and the same `op` in each step: the persistent request depends on both.
        """
        if vector is not self._reduced:
            if self._reduction:
                self._reduction.Free()
            arguments = {"op": op, "comm": self.comm, "algorithm": self._algorithm}
            self._reduction = pycoll.allreduce_init(MPI.IN_PLACE, vector, **arguments)
            self._reduced = vector
        assert self._reduction
        self._reduction.Start()
        return self._reduction

    def start(self, hook: Any) -> None:
        """Run the hook up to its first yield."""
        self._over = under_way(f"bucket {self.index}")
        self._hook = iter(hook(self))
        self._go_on()

    def _go_on(self) -> bool:
        awaited = next(self._hook, None)
        self._awaited = list(awaited) if isinstance(awaited, (list, tuple)) else [] if awaited is None else [awaited]
        return awaited is not None

    def progress(self) -> bool:
        """Advance communication; return whether all requests that the hook waits for are complete."""
        return pycoll.testall(self._awaited)[0]

    def finish(self) -> None:
        """Run the hook to its end, and prepare for the next step."""
        pycoll.waitall(self._awaited)
        while self._go_on():
            pycoll.waitall(self._awaited)
        self._over()
        self.missing = set(self.views)

    def drop(self) -> None:
        """Wait for the pending requests, and prepare for the next step without running the hook to its end."""
        pycoll.waitall(self._awaited)
        self._hook, self._awaited = iter(()), []
        self._over()

    def free(self) -> None:
        """Wait for the pending requests and free the persistent one."""
        pycoll.waitall(self._awaited)
        if self._reduction:
            self._reduction.Free()
            self._reduction = self._reduced = None


def assign(arrays: Arrays, limit: int, first_limit: int) -> list[list[str]]:
    """Assign arrays to buckets of one dtype and up to `limit` bytes, in reverse order; return the names.

    The first bucket of each dtype has at most `first_limit` bytes.  An array larger than the limit has a bucket of its
    own.  The buckets are in the order in which the backward pass fills them.
    """
    order = {name: number for number, name in enumerate(reversed(list(arrays)))}
    buckets: list[list[str]] = []
    for group in by_dtype(dict(reversed(list(arrays.items())))).values():
        filled, available = 0, 0
        for name, array in group.items():
            if filled + array.nbytes > available or not available:
                buckets.append([])
                filled, available = 0, limit if available else first_limit
            buckets[-1].append(name)
            filled += array.nbytes
    return sorted(buckets, key=lambda names: max(order[name] for name in names))


def average_gradients(gradients: Arrays, comm: MPI.Comm | None = None, bucket_bytes: int = 25 << 20) -> Arrays:
    """Average arrays over the ranks in place, with several arrays in one message.

    Parameters
    ----------
    gradients : mapping of str to array
        The arrays.  Names, shapes and dtypes must be the same on all ranks, in the same order.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    bucket_bytes : int
        Size limit of the arrays that are sent together, in bytes.

    Returns
    -------
    mapping of str to array
        `gradients`, with the averages in its arrays.

    Raises
    ------
    TypeError
        If gradients are integers, which cannot be averaged.
    ValueError
        If an array is read-only, or is a scalar of NumPy.
    """
    check_positive("bucket_bytes", bucket_bytes, "number of bytes")
    comm = MPI.COMM_WORLD if comm is None else comm
    pycoll.attach(comm)
    arrays = check_in_place(gradients)
    groups = [[arrays[name] for name in names] for names in assign(arrays, bucket_bytes, bucket_bytes)]
    pycoll.waitall([pycoll.iallreduce(group, op=pycoll.AVG, comm=comm, algorithm="ring") for group in groups])
    return gradients

"""Units of a sharded model: parameters that are gathered together, and the buffers for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.primitives import names
from pycoll.trace import under_way

from .flat import Array, Arrays, FlatLayout, by_dtype, copy, empty, shared_empty


def default_units(parameters: Arrays) -> list[list[str]]:
    """Group the parameters whose names agree up to the last dot into units."""
    units: dict[str, list[str]] = {}
    for name in parameters:
        units.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return list(units.values())


def units_of(parameters: Arrays, units: Sequence[Sequence[str]]) -> list[dict[str, Array]]:
    """Return the parameters of each unit; raise ValueError unless each is in one unit, and each unit has one dtype."""
    listed = [name for names in units for name in names]
    for name in listed:
        if name not in parameters:
            raise ValueError(f"units: {name!r} is not a parameter")
        if listed.count(name) > 1:
            raise ValueError(f"units: {name!r} is listed more than once")
    if missing := [name for name in parameters if name not in listed]:
        raise ValueError(f"units: no unit lists {', '.join(map(repr, missing))}")
    groups = [{name: parameters[name] for name in names} for names in units]
    for group in groups:
        if len(by_dtype(group)) != 1:
            raise ValueError(f"units: the parameters {', '.join(map(repr, group))} do not have one dtype")
    return groups


class Unit:
    """The shard of a unit on this rank; gathers the parameters and reduces their gradients.

    The parameters form one flat vector, padded so that the shards of all ranks have the same length.  `shard` begins
    at element `start` of this vector.
    """

    def __init__(
        self,
        number: int,
        arrays: Arrays,
        comm: MPI.Comm,
        param_dtype: np.dtype | None,
        reduce_dtype: np.dtype | None,
        offload: bool,
        algorithm: names.Sharding | None,
    ) -> None:
        self.layout = FlatLayout(arrays)
        self.names = list(arrays)
        self._number = number
        self._comm, self._algorithm = comm, algorithm
        like = empty(next(iter(arrays.values())), 0)  # has the memory and the dtype of all buffers
        length = -(-self.layout.size // comm.size)
        self.start, self.padded = length * comm.rank, length * comm.size
        self._like = like
        self.shard = np.empty(length, like.dtype) if offload else shared_empty(like, length, None, comm)
        self._sum: Any = None  # the sum of the averages of several backward passes
        self._arrived = False
        self._sent = shared_empty(like, length, param_dtype, comm) if offload or param_dtype else self.shard
        self._arriving = empty(like, length, reduce_dtype)
        self.dtypes = {"gathered": self._sent.dtype, "reduced": self._arriving.dtype}
        self._gathering: pycoll.Request | None = None
        self._reducing: pycoll.Request | None = None
        self._scatter(arrays)

    def _scatter(self, arrays: Arrays) -> None:
        """Scatter the values on rank 0 to the shards."""
        mine = empty(self._like, len(self.shard))
        vector = None
        if self._comm.rank == 0:
            vector = self.buffer(self.padded, self._like.dtype)
            vector[self.layout.size :] = 0
            for name, view in self.layout.views(vector).items():
                view[...] = arrays[name]
        pycoll.scatter(vector, mine, comm=self._comm)
        copy(self.shard, mine)

    def buffer(self, length: int, dtype: Any) -> Array:
        """Allocate a vector in the memory of the parameters."""
        return empty(self._like, length, dtype)

    def shared_buffer(self, nbytes: int) -> Array:
        """Allocate bytes in the memory of the parameters, registered if possible; all ranks call this together."""
        return shared_empty(self._like, nbytes, np.uint8, self._comm)

    def start_gathering(self, vector: Array) -> None:
        """Start to gather the unit into a vector of `padded` elements."""
        if self._sent is not self.shard:
            copy(self._sent, self.shard)
        self._gathered = under_way(f"gather unit {self._number}")
        self._gathering = pycoll.iallgather(self._sent, vector, comm=self._comm, algorithm=self._algorithm)

    def finish_gathering(self) -> None:
        """Wait until the unit is gathered."""
        if self._gathering is not None:
            self._gathering.Wait()
            self._gathered()
            self._gathering = None

    def start_reducing(self, vector: Array) -> None:
        """Start to average the gradients of the unit."""
        if self._arrived:
            self._add_up()
        vector[self.layout.size :] = 0
        op: MPI.Op | Literal["avg"] = pycoll.AVG
        if vector.dtype.itemsize < self.shard.itemsize:  # divide before the sum can overflow
            vector /= self._comm.size
            op = MPI.SUM
        self._reduced = under_way(f"reduce unit {self._number}")
        self._reducing = pycoll.ireduce_scatter(vector, self._arriving, op, comm=self._comm, algorithm=self._algorithm)

    def finish_reducing(self) -> None:
        """Wait for the average."""
        if self._reducing is not None:
            self._reducing.Wait()
            self._reduced()
            self._reducing, self._arrived = None, True

    @property
    def has_average(self) -> bool:
        """Whether there was a backward pass since the last call of `averaged`."""
        return self._arrived or self._sum is not None

    def forget_average(self) -> None:
        """Discard the sum of the averages."""
        self._arrived, self._sum = False, None

    def averaged(self) -> Array:
        """Return the sum of the averages since the last call."""
        if self._sum is None and self._arriving.dtype == self.shard.dtype and type(self._arriving) is type(self.shard):
            self._arrived = False
            return self._arriving
        self._add_up()
        average, self._sum = self._sum, None
        return average

    def _add_up(self) -> None:
        arrived: Array = np.empty_like(self.shard)
        copy(arrived, self._arriving)
        if self._sum is None:
            self._sum = arrived
        else:
            self._sum += arrived
        self._arrived = False

    def progress(self) -> None:
        """Advance communication."""
        for request in (self._gathering, self._reducing):
            if request is not None:
                request.Test()

    def whole(self, root: int | None) -> dict[str, Array]:
        """Gather the whole parameters on all ranks, or on `root` only; other ranks get {}."""
        vector: Array
        if root is None:
            vector = pycoll.allgather(self.shard, comm=self._comm)
        else:
            vector = pycoll.gather(self.shard, root=root, comm=self._comm)
        return {} if vector is None else self.layout.views(vector.reshape(-1))


class UnitBuffers:
    """A few buffers that the units use in turn, for their parameters or for their gradients.

    Unit u uses slot u modulo `count`, so with `count` above 1 a unit and the next one have different slots.
    """

    def __init__(self, units: list[Unit], count: int, what: str) -> None:
        self._count = min(count, len(units))
        self._vectors: dict[int, Array] = {}
        for first in range(self._count):
            numbers = range(first, len(units), self._count)
            nbytes = max(units[number].padded * units[number].dtypes[what].itemsize for number in numbers)
            memory = units[first].shared_buffer(nbytes)
            for number in numbers:
                dtype = units[number].dtypes[what]
                self._vectors[number] = memory[: units[number].padded * dtype.itemsize].view(dtype)
        self._views = {number: units[number].layout.views(vector) for number, vector in self._vectors.items()}
        self._holders: dict[int, int] = {}

    def vector(self, unit: int) -> Array:
        """Return the buffer for the whole unit, with padding."""
        return self._vectors[unit]

    def views(self, unit: int) -> dict[str, Array]:
        """Return the arrays of the unit, as views of its buffer."""
        return self._views[unit]

    def holder(self, unit: int) -> int | None:
        """Return the unit whose values are in the slot of this unit, or None."""
        return self._holders.get(unit % self._count)

    def hold(self, unit: int) -> None:
        """Record that the slot of the unit now holds its values."""
        self._holders[unit % self._count] = unit

    def forget(self) -> None:
        """Record that all slots are empty."""
        self._holders.clear()

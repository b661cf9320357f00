"""Collectives of Python objects, over the collectives of buffers.

A rank first sends a short record of each object, by the collective of that name: its pickle, or the sizes of its
segments.  The segments follow: each is sent from its own memory, and received into the memory of the new object.  Where
all ranks use the compiled core, it packs short objects and exchanges records (`pycoll.core.objects`); the rest is done
here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.mpi_arguments import read
from ..arguments.ops import resolve
from ..base.errors import RemoteError, WrongCommunicator
from ..base.parcels import (
    LONG_ARRAY,
    Parcel,
    array_of,
    failed,
    has_table,
    one_for_each,
    packed,
    segment_sizes,
    table_rows,
    unpacked,
)
from ..compiler.program import BLOCKING
from ..schedule.registry import NATIVE, find
from .calls import Call
from .channel import Channel
from .dispatch import check_order, check_root, run
from .front import NUMBERS
from .interruptions import interruptions_delayed
from .progress import until

if TYPE_CHECKING:
    from ..schedule.symbols import Expression

ROOM = 252  # bytes of a record after its length
ALIGNED = 64  # bytes between the beginnings of segments in one array
LONGEST = 1 << 30  # bytes of a message, because MPI counts them in an int
Wires = list[bytes]  # what parcels send first


class Objects:
    """The collectives of objects on one communicator."""

    def __init__(self, comm: MPI.Comm, channel: Channel) -> None:
        self._comm, self._channel = MPI.Intracomm(comm), channel
        self._rank, self._size = comm.rank, comm.size

    @interruptions_delayed()
    def bcast(self, obj: Any, root: Any = 0, algorithm: str | None = None) -> Any:
        """Give the object of the root to all ranks."""
        self._check(root)
        sends = self._rank == root
        mine, error = self._packed([obj] if sends else [])
        record = _records(mine) if sends else _records([None])
        self._move("bcast", None, record, root, algorithm)
        return self._ended("bcast", _wires(record), mine, root, error, algorithm)[0]

    @interruptions_delayed()
    def scatter(self, objs: Any, root: Any = 0, algorithm: str | None = None) -> Any:
        """Give each rank an object of the root."""
        self._check(root)
        sends = self._rank == root
        mine, error = self._packed(objs, True) if sends else ([], None)
        record = self._run("scatter", _records(mine) if sends else None, _records([None])[0], root, algorithm)
        return self._ended("scatter", _wires(record[None]), mine, root, error, algorithm)[0]

    @interruptions_delayed()
    def gather(self, obj: Any, root: Any = 0, algorithm: str | None = None) -> Any:
        """Give the objects of all ranks to the root."""
        self._check(root)
        mine, error = self._packed([obj])
        records = self._run("gather", _records(mine)[0], None, root, algorithm)
        found = _wires(records) if self._rank == root else None
        return self._ended("gather", found, mine, root, error, algorithm)

    @interruptions_delayed()
    def allgather(self, obj: Any, algorithm: str | None = None) -> Any:
        """Give the objects of all ranks to all ranks."""
        self._check()
        mine, error = self._packed([obj])
        found = _wires(self._run("allgather", _records(mine)[0], None, 0, algorithm))
        return self._ended("allgather", found, mine, 0, error, algorithm)

    @interruptions_delayed()
    def alltoall(self, objs: Any, algorithm: str | None = None) -> Any:
        """Give each rank an object of each rank."""
        self._check()
        mine, error = self._packed(objs, True)
        found = _wires(self._run("alltoall", _records(mine), None, 0, algorithm))
        return self._ended("alltoall", found, mine, 0, error, algorithm)

    def reduce(self, obj: Any, op: Any, root: Any = 0, algorithm: str | None = None) -> Any:
        """Combine the objects of all ranks at the root."""
        return self._reduce("reduce", obj, op, root, algorithm)

    def allreduce(self, obj: Any, op: Any, algorithm: str | None = None) -> Any:
        """Combine the objects of all ranks on all ranks."""
        if callable(op) and algorithm is None and not self.is_predefined(op):
            return self.reduced_and_sent(self, obj, op)
        return self._reduce("allreduce", obj, op, 0, algorithm)

    def scan(self, obj: Any, op: Any, algorithm: str | None = None) -> Any:
        """Combine the objects of the ranks up to this one."""
        return self._reduce("scan", obj, op, 0, algorithm)

    def exscan(self, obj: Any, op: Any, algorithm: str | None = None) -> Any:
        """Combine the objects of the ranks before this one."""
        return self._reduce("exscan", obj, op, 0, algorithm)

    def combined(self, name: str, values: list[Any], op: Any, root: int = 0, algorithm: str | None = None) -> Any:
        """Combine the objects of all ranks, in the order of the algorithm; by default, in that of mpi4py."""
        if name == "exscan" and self._rank == 0:
            return None
        combine = _function(op, values)
        if algorithm not in (None, NATIVE):
            return _evaluated(self._order(name, root, str(algorithm)), values, combine)
        if name in ("scan", "exscan"):
            return _scanned(values, self._rank, combine, name == "exscan")
        return _folded(values, combine)

    @interruptions_delayed()
    def in_python(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call of several collectives, which signal handlers must not separate."""
        return call(*arguments)

    def combines(self, op: Any, array: Parcel) -> int:
        """The number of the operation if it combines the elements of a long array, else -1."""
        kind = array_of(array).dtype.kind
        if isinstance(op, MPI.Op):
            for number, known in enumerate(_ELEMENTWISE):
                if op.handle == known.handle and kind in known.kinds:
                    return number
        return -1

    def is_predefined(self, op: Any) -> bool:
        """Whether this is an operation of MPI; another one may give different results on different ranks."""
        return isinstance(op, MPI.Op) and bool(op.is_predefined)

    def failure(self, rank: int) -> Exception | None:
        """The error to raise if a rank of this host has ended."""
        return self._channel.failure_on_host(rank)

    @interruptions_delayed()
    def reduced_and_sent(self, collectives: Any, obj: Any, op: Any) -> Any:
        """Combine the objects on rank 0, and give the result to all ranks."""
        result = error = None
        try:
            result = collectives.reduce(obj, op, 0)
        except BaseException as failure:  # the others wait for the result
            error = failure
        try:
            result = collectives.bcast(result if error is None else _Failed(error), 0)
        except RemoteError as failure:
            error = failure if error is None else error
        if error is not None:
            raise error
        return result

    def combined_arrays(self, name: str, array: Parcel, op: Any, root: int, algorithm: str | None = None) -> Any:
        """Run a reduction of long arrays."""
        return self._run(name, array_of(array), None, root, algorithm, op)

    @interruptions_delayed()
    def exchange(self, result: list[object], name: str, algorithm: str | None, send: Any, recv: Any, root: int) -> None:
        """Run a collective of buffers; then `result` has one item, and meanwhile the mark that the call has begun."""
        self._check(root)
        result.append(core.BEGUN)
        self._move(name, send, recv, root, algorithm)
        result[0] = None

    @interruptions_delayed()
    def follow(self, result: list[object], *arguments: Any) -> None:
        """Run the collectives of the segments of parcels; `result` gets the segments."""
        result.append(core.BEGUN)
        result[0] = self._segments(*arguments)

    def _check(self, root: Any = 0) -> None:
        if self._channel.comm == MPI.COMM_NULL:
            raise WrongCommunicator("comm is MPI.COMM_NULL: it has been freed")
        self._channel.check_usable()
        check_root(root, self._size)

    def _packed(self, objs: Any, one_each: bool = False) -> tuple[list[Parcel], BaseException | None]:
        """Pack objects, with `one_each` one for each rank; and the error for which this rank sends none."""
        try:
            return [packed(obj, ROOM) for obj in (one_for_each(objs, self._size) if one_each else objs)], None
        except BaseException as error:
            return [failed(self._rank, error, ROOM)] * (self._size if one_each else 1), error

    def _run(self, name: str, send: Any, recv: Any, root: int, algorithm: str | None, op: Any = None) -> Any:
        """Run a collective of buffers, and return the receive buffer."""
        result = self._channel.front.call(NUMBERS[name, False], algorithm, send, recv, op, root)
        if result is not core.MISSED:
            return result
        return run(Call(name, self._comm, send, recv, op, root, algorithm), self._channel)

    def _move(self, name: str, send: Any, recv: Any, root: int, algorithm: str | None) -> None:
        """Run a collective of bytes, into a receive buffer that is given."""
        if not self._channel.front.run(NUMBERS[name, False], algorithm, send, recv, None, root):
            run(Call(name, self._comm, send, recv, None, root, algorithm, None, read), self._channel)

    def _ended(
        self,
        name: str,
        found: Wires | None,
        mine: list[Parcel],
        root: int,
        error: BaseException | None,
        algorithm: str | None,
    ) -> Any:
        """Unpack what came, after segments have followed; or raise the error for which this rank sends no object."""
        try:
            segments = self._segments(name, found, mine, root, algorithm)
            result = None if found is None else [unpacked(*one) for one in zip(found, segments, strict=True)]
        except RemoteError:
            if error is None:
                raise
        if error is not None:
            raise error
        return result

    def _segments(
        self, name: str, found: Wires | None, mine: list[Parcel], root: int, algorithm: str | None = None
    ) -> list[list[np.ndarray]]:
        """The segments that follow for the objects of which this has come, without tables; `mine` are those sent."""
        wires = found or []
        sizes = [segment_sizes(wire) for wire in wires]
        try:
            if any(map(has_table, [*wires, *(one.wire for one in mine)])):
                of_tables = [size if has_table(wire) else [] for wire, size in zip(wires, sizes, strict=True)]
                tables = self._followed(name, of_tables, [one.split()[0] for one in mine], root, algorithm)
                for number, table in enumerate(tables):
                    if table:
                        sizes[number] = [size for _, size in table_rows(table[0])]
            return self._followed(name, sizes, [one.split()[1] for one in mine], root, algorithm)
        except MemoryError as error:  # other ranks wait for this one
            raise self._channel.interrupted(f"{name} of objects on rank {self._rank}", error) from None

    def _followed(
        self, name: str, sizes: list[list[int]], sent: list[list[np.ndarray]], root: int, algorithm: str | None
    ) -> list[list[np.ndarray]]:
        """Segments of these sizes, from each rank that sends; `sent` are those of each object that this rank sends."""
        if name == "bcast":
            return [self._followed_bcast(sizes[0], sent, root, algorithm)]
        if name == "allgather":
            return self._followed_allgather(sizes, sent[0], algorithm)
        return self._followed_directly(name, sizes, sent, root)

    def _followed_bcast(
        self, sizes: list[int], sent: list[list[np.ndarray]], root: int, algorithm: str | None
    ) -> list[np.ndarray]:
        """The segments of a broadcast."""
        sends = self._rank == root
        segments = sent[0] if sends else [np.empty(size, np.uint8) for size in sizes]
        for segment in segments:
            self._move("bcast", None, segment, root, algorithm)
        return [segment.copy() for segment in segments] if sends else segments

    def _followed_allgather(
        self, sizes: list[list[int]], sent: list[np.ndarray], algorithm: str | None
    ) -> list[list[np.ndarray]]:
        """The segments of an all-gather: first the first one of each rank, and so on."""
        segments = [list[np.ndarray]() for _ in sizes]
        for number in range(max(map(len, sizes))):
            counts = [one[number] if number < len(one) else 0 for one in sizes]
            send = sent[number] if number < len(sent) else np.empty(0, np.uint8)
            displs = [0, *accumulate(-(-count // ALIGNED) * ALIGNED for count in counts)]
            recv = np.empty(displs.pop(), np.uint8)
            self._move("allgatherv", send, [recv, (counts, displs)], 0, algorithm)
            for rank, (count, displ) in enumerate(zip(counts, displs, strict=True)):
                if number < len(sizes[rank]):
                    segments[rank].append(recv[displ : displ + count])
        return segments

    def _followed_directly(
        self, name: str, sizes: list[list[int]], sent: list[list[np.ndarray]], root: int
    ) -> list[list[np.ndarray]]:
        """The segments of a scatter, a gather or an all-to-all, which go straight from one rank to another."""
        ranks = range(self._size)
        outgoing: list[list[np.ndarray]] = [[] for _ in ranks]
        incoming: list[list[np.ndarray]] = [[] for _ in ranks]
        if name == "gather":
            outgoing[root] = sent[0]
        elif sent:
            outgoing = sent
        sources = [root] if name == "scatter" else ranks
        for source, expected in zip(sources, sizes, strict=False):  # other ranks than the root of a gather get nothing
            incoming[source] = [np.empty(size, np.uint8) for size in expected]
        for mine_too, here in zip(outgoing[self._rank], incoming[self._rank], strict=False):
            here[:] = mine_too
        self._exchange(outgoing, incoming)
        return [incoming[source] for source in sources]

    def _exchange(self, outgoing: list[list[np.ndarray]], incoming: list[list[np.ndarray]]) -> None:
        """Send arrays to other ranks, and receive others from them."""
        comm, name = self._channel.comm, f"a collective of objects on rank {self._rank} of {self._size}"
        requests: list[MPI.Request] = []
        try:
            for step in range(1, self._size):
                to, source = (self._rank + step) % self._size, (self._rank - step) % self._size
                requests += [comm.Irecv(piece, source, BLOCKING) for one in incoming[source] for piece in _pieces(one)]
                requests += [comm.Isend(piece, to, BLOCKING) for one in outgoing[to] for piece in _pieces(one)]
            until(partial(MPI.Request.Testall, requests), name)
        except BaseException as error:
            raise self._channel.interrupted(name, error, requests, outgoing, incoming) from None

    @interruptions_delayed()
    def _reduce(self, name: str, obj: Any, op: Any, root: int, algorithm: str | None) -> Any:
        self._check(root)
        if not callable(op):
            raise TypeError(f"op={op!r} is not an MPI.Op or another function of two objects")
        if algorithm is not None:
            chosen = find(name, algorithm)
            if isinstance(op, MPI.Op) and not op.Is_commutative():
                check_order(chosen)
        (mine,), error = self._packed([obj])
        found = _wires(self._run("allgather", _records([mine])[0], None, 0, None))
        if mine.wire[:1] == LONG_ARRAY and found == [mine.wire] * self._size and self.combines(op, mine) >= 0:
            return self.combined_arrays(name, mine, op, root, algorithm)
        receives = name != "reduce" or self._rank == root
        how = "gather" if name == "reduce" else "allgather"
        values = self._ended(how, found if receives else None, [mine], root, error, None)
        return self.combined(name, values, op, root, algorithm) if receives else None

    def _order(self, name: str, root: int, algorithm: str) -> Expression:
        """The order in which an algorithm combines a vector of one element for this rank."""
        from ..primitives.direct import results_of  # it imports all algorithms

        chosen = find(name, algorithm)
        hosts = self._channel.facts.hosts_for(chosen)
        return results_of(chosen, self._size, root, 1, hosts)[0].wanted[self._rank]


def _pieces(array: np.ndarray) -> list[np.ndarray]:
    """The parts of an array of bytes that one message can have."""
    return [array[start : start + LONGEST] for start in range(0, array.nbytes, LONGEST)]


class _Failed:
    """Stands for an object that a rank does not have."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> str:
        raise self.error


def _records(parcels: list[Any]) -> np.ndarray:
    """One record for each parcel."""
    records = np.zeros((len(parcels), 4 + ROOM), np.uint8)
    for record, parcel in zip(records, parcels, strict=True):
        if parcel:
            content = struct.pack("i", len(parcel.wire)) + parcel.wire
            record[: len(content)] = np.frombuffer(content, np.uint8)
    return records


def _wires(records: np.ndarray) -> Wires:
    """What the parcels of these records send first."""
    return [record[4 : 4 + int(record[:4].view(np.int32)[0])].tobytes() for record in records]


# the operations that combine the elements of arrays; the others combine whole objects only, as in mpi4py
_ELEMENTWISE = [resolve(name) for name in ("sum", "prod", "max", "min", "band", "bor", "bxor")]


def _function(op: Any, values: list[Any]) -> Callable[[Any, Any], Any]:
    """The function that combines these objects: of arrays, MPI.MAX and the like combine the elements."""
    arrays = isinstance(op, MPI.Op) and all(type(value) is np.ndarray and value.size != 1 for value in values)
    if arrays:  # those of one element are compared as in mpi4py
        return next((known.combine for known in _ELEMENTWISE if op.handle == known.handle), op)
    return op  # type: ignore[no-any-return]


def _folded(values: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine values in their order, in the tree of mpi4py."""
    step = 1
    while step < len(values):
        for left in range(0, len(values) - step, 2 * step):
            values[left] = combine(values[left], values[left + step])
        step *= 2
    return values[0]


def _scanned(values: list[Any], rank: int, combine: Callable[[Any, Any], Any], exclusive: bool) -> Any:
    """Combine the values of the ranks up to this one, or before it, as mpi4py does by recursive doubling."""
    results = [] if exclusive else [values[rank]]
    for bit in range(rank.bit_length()):
        if rank >> bit & 1:
            end = rank >> bit << bit
            block = _folded(values[end - (1 << bit) : end], combine)
            results = [combine(block, results[0])] if results else [block]
    return results[0]


def _evaluated(order: Expression, values: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combine values in this order."""
    from ..schedule.symbols import Leaf

    if isinstance(order, Leaf):
        return values[order.rank]
    return combine(_evaluated(order.left, values, combine), _evaluated(order.right, values, combine))


def objects_of(comm: MPI.Comm, channel: Channel) -> core.ObjectCollectives | Objects:
    """The collectives of objects on a communicator."""
    others = Objects(comm, channel)
    if not channel.facts.core:
        return others
    if not (channel.slots and channel.reads_memory):
        return core.ObjectMessages(comm.rank, comm.size, others, channel, NUMBERS)
    processes = [channel.processes[rank] for rank in range(channel.size)]
    return core.ObjectSlots(comm.rank, comm.size, others, channel.slots, processes)

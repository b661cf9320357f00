"""The buffers of one call: checked, and allocated if none was passed."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..compiler.program_key import Extents, side_by_side
from ..schedule.registry import Primitive
from .arrays import (
    IN_PLACE,
    Action,
    Array,
    as_array,
    check_contiguous,
    check_writeable,
    copying,
    finishing,
    hint,
    recv_array,
)
from .memory import address, allocate_like, array_at, bounds, device_of, overlap
from .memory_kinds import HOST, Memory

_BYTE = np.dtype(np.uint8)


@dataclass
class CheckedBuffers:
    """The checked buffers of one rank for a collective."""

    send: Array | None  # C-contiguous; None if the rank has no input, or has it in `recv`
    recv: Array | None
    count: int  # elements of the vector (bcast, reduce, allreduce) or of the block of one rank
    dtype: np.dtype
    in_place: bool
    result: Any  # the receive buffer of the caller, or the allocated array
    sends: Extents | None = None  # if blocks differ in length: the positions of the input blocks, in bytes
    recvs: Extents | None = None  # and of the output blocks
    before: list[Action] = field(default_factory=list)  # local work before each run: packing
    after: list[Action] = field(default_factory=list)  # local work after each run: unpacking
    memory: Memory = HOST  # the kind of memory that the collective runs on
    read_only: bool = False  # `recv` is only read: the buffer of the root in a broadcast
    elements: str = ""  # the dtype that PYCOLL_CHECK compares, if `dtype` is not that of the caller; "" if unknown

    def at(self, send: tuple[int, int] | None, recv: tuple[int, int] | None) -> CheckedBuffers:
        """A copy for other memory, by address and number of bytes, without local work before and after."""
        given, got = (None if one is None else array_at(*one, _BYTE) for one in (send, recv))
        return CheckedBuffers(
            *(given, got, self.count, self.dtype, self.in_place, None, self.sends, self.recvs),
            memory=self.memory,
            read_only=self.read_only,
        )

    def has_gaps(self) -> bool:
        """Whether `recv` contains bytes that belong to no block."""
        if self.recv is None or self.recvs is None:
            return False
        return sum(nbytes for _, nbytes in self.recvs) < int(self.recv.nbytes)

    def mean_size(self, size: int) -> int:
        """The bytes of the vector or of the block of one rank; the mean, if blocks differ and all ranks know it."""
        extents = self.extents(size)
        if extents is None:
            return self.count * self.dtype.itemsize
        return sum(nbytes for _, nbytes in extents) // size

    def extents(self, size: int) -> Extents | None:
        """The extents of the blocks of all ranks; None if blocks do not differ, or if only their senders know them."""
        return self.recvs if self.recvs and len(self.recvs) == size else self.sends


def _source(name: str, buffer: Any, before: list[Action]) -> Array:
    """The array of a buffer to read from; if it is not C-contiguous, an array into which `before` packs it."""
    array = as_array(name, buffer)
    if array.flags.c_contiguous:
        return array
    return copied(array, before)


def refuse_to_scatter_in_place(primitive: Primitive, sendbuf: object, is_root: bool) -> None:
    """Raise ValueError if the root of a scatter gives MPI.IN_PLACE for the wrong buffer."""
    if is_root and sendbuf is IN_PLACE and primitive.rooted and primitive.takes_all:
        raise ValueError(
            f"sendbuf=MPI.IN_PLACE is not allowed in {primitive.name}: if its block is to stay where it is, the root "
            "passes recvbuf=MPI.IN_PLACE"
        )


def check_buffers(
    primitive: Primitive, sendbuf: Any, recvbuf: Any, rank: int, size: int, root: int, recvcounts: Any = None
) -> CheckedBuffers:
    """Check the buffers of one rank for a collective, and allocate the result if no buffer was passed."""
    before: list[Action] = []
    if primitive.name in ("bcast", "allreduce") and (isinstance(sendbuf, list) or isinstance(recvbuf, list)):
        return _fused(primitive, sendbuf, recvbuf, rank == root)
    if primitive.name == "bcast":
        return _bcast(recvbuf, rank == root)
    refuse_to_scatter_in_place(primitive, sendbuf, rank == root)
    if recvcounts is not None:
        return _by_counts(sendbuf, recvbuf, rank, size, recvcounts, before)
    gives = bool(primitive.holds(rank, size, root, 1))
    gets = bool(primitive.wants(rank, size, root, 1))
    if primitive.name == "scatter" and gives and recvbuf is IN_PLACE:
        send = _source("sendbuf", sendbuf, before)
        return CheckedBuffers(send, None, _blocks("sendbuf", send, size), send.dtype, True, None, before=before)
    if gives and sendbuf is IN_PLACE and (gets or primitive.name == "exscan"):
        return _in_place(primitive, recvbuf, size)

    if not gives and not gets:
        return CheckedBuffers(None, None, 0, _BYTE, False, recvbuf)
    if not gives:
        return _receive(primitive, recvbuf)
    send = _source("sendbuf", sendbuf, before)
    count = _blocks("sendbuf", send, size) if primitive.takes_all else send.size
    if not gets and (primitive.name != "exscan" or recvbuf is None):
        return CheckedBuffers(send, None, count, send.dtype, False, None, before=before)
    if gets and recvbuf is None:
        recv = allocate_like(send, result_shape(primitive, send.shape, send.size, size))
        return CheckedBuffers(send, recv, count, send.dtype, False, recv, before=before)
    recv = recv_array("recvbuf", recvbuf)
    _check_pair(send, recv, count * size if primitive.gives_all else count)
    if not gets:  # rank 0 of an exclusive scan, whose receive buffer is not used
        return CheckedBuffers(send, None, count, send.dtype, False, recvbuf, before=before)
    if address(send) == address(recv) and send.size and primitive.reduces:
        checked = _in_place(primitive, send if primitive.takes_all else recvbuf, size)
        checked.result = recvbuf
        return checked
    if is_same(send, recv):
        send = copied(send, before)
    check_apart(send, recv, IN_PLACE_HINT)
    return CheckedBuffers(send, recv, count, send.dtype, False, recvbuf, before=before)


def _fused(primitive: Primitive, sendbuf: Any, recvbuf: Any, is_root: bool) -> CheckedBuffers:
    """Buffers of several arrays that are sent together; for reductions all have one dtype."""
    reduces = primitive.reduces
    if not reduces or sendbuf is IN_PLACE or recvbuf is None:
        sendbuf = recvbuf = recvbuf if isinstance(recvbuf, list) else sendbuf
    if not isinstance(sendbuf, list) or not isinstance(recvbuf, list) or len(sendbuf) != len(recvbuf):
        why = "sendbuf and recvbuf must be lists of the same length if one of them is a list"
        raise TypeError(why + (hint(sendbuf) or hint(recvbuf)))
    names = ("sendbuf", "recvbuf") if reduces else ("buf", "buf")
    sources, targets = (
        [as_array(f"{name}[{i}]", buffer) for i, buffer in enumerate(buffers)]
        for name, buffers in zip(names, (sendbuf, recvbuf))
    )
    for i, (source, target) in enumerate(zip(sources, targets)):
        if (source.shape, source.dtype) != (target.shape, target.dtype):
            raise ValueError(
                f"sendbuf[{i}] has shape {source.shape} and dtype {source.dtype}, "
                f"recvbuf[{i}] {target.shape} and {target.dtype}"
            )
        if reduces and source.dtype != sources[0].dtype:
            raise TypeError(f"sendbuf[{i}] has dtype {source.dtype}, sendbuf[0] has dtype {sources[0].dtype}")
        if reduces or not is_root:
            check_writeable(f"{names[1]}[{i}]", recvbuf[i], target)
        if {device_of(source), device_of(target)} != {device_of(sources[0])}:
            raise TypeError(f"{names[0]}[{i}] and another array of the lists are in different memories, GPU and host")
    if recvbuf is not sendbuf:
        _check_each_apart(targets)
    starts, end = [], 0
    for array in sources:
        starts.append(end + -end % array.dtype.alignment)  # a GPU combines and copies only aligned elements
        end = starts[-1] + array.nbytes
    together: Array = allocate_like(sources[0], (end,), np.uint8) if sources else np.empty(0, np.uint8)
    slots = [
        together[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        for start, array in zip(starts, sources)
    ]
    vector = together.view(sources[0].dtype) if reduces and sources else together
    before: list[Action] = [copying(slot, array) for slot, array in zip(slots, sources)]
    after: list[Action] = [*(copying(array, slot) for slot, array in zip(slots, targets)), *finishing(together)]
    if not reduces:
        before, after = (before, []) if is_root else ([], after)
    checked = CheckedBuffers(
        None, vector, vector.size, vector.dtype, reduces or is_root, recvbuf, before=before, after=after
    )
    dtypes = [str(array.dtype) for array in sources]
    checked.elements = ", ".join(dtypes if len(set(dtypes)) > 1 else dtypes[:1])
    return checked


def _check_each_apart(arrays: list[Array]) -> None:
    """Raise ValueError if two of the arrays share memory."""
    extents = sorted((*bounds(array), i) for i, array in enumerate(arrays) if array.size)
    for at, (_, end, i) in enumerate(extents):
        for start, _, j in extents[at + 1 :]:
            if start >= end:
                break
            if np.shares_memory(arrays[i], arrays[j]):
                raise ValueError(f"recvbuf[{min(i, j)}] and recvbuf[{max(i, j)}] overlap in memory")


def _by_counts(
    sendbuf: Any, recvbuf: Any, rank: int, size: int, recvcounts: Any, before: list[Action]
) -> CheckedBuffers:
    """Buffers of a reduce-scatter with `recvcounts`."""
    counts = counts_array("recvcounts", recvcounts, size)
    name, inside = ("recvbuf", recvbuf) if sendbuf is IN_PLACE else ("sendbuf", sendbuf)
    vector = recv_array(name, inside) if sendbuf is IN_PLACE else _source(name, inside, before)
    if vector.size != sum(counts):
        raise ValueError(f"{name} has {vector.size} elements, but the sum of recvcounts is {sum(counts)}")
    itemsize = vector.dtype.itemsize
    sends = side_by_side([n * itemsize for n in counts])
    own = ((0, counts[rank] * itemsize),)
    if sendbuf is IN_PLACE:
        result = vector.reshape(-1)[: counts[rank]]
        return CheckedBuffers(None, vector, counts[rank], vector.dtype, True, result, sends, own)
    if recvbuf is None:
        recvbuf = allocate_like(vector, (counts[rank],))
    recv = recv_array("recvbuf", recvbuf)
    _check_pair(vector, recv, counts[rank])
    if address(vector) == address(recv) and recv.size:
        vector = recv_array(name, vector)
        return CheckedBuffers(None, vector, counts[rank], vector.dtype, True, recvbuf, sends, own, before)
    check_apart(vector, recv, IN_PLACE_HINT)
    return CheckedBuffers(vector, recv, counts[rank], vector.dtype, False, recvbuf, sends, own, before)


def counts_array(name: str, counts: Any, size: int) -> list[int]:
    """Counts (or displacements) as a list with an entry for each rank; one number stands for equal entries."""
    try:
        numbers = [operator.index(n) for n in ([counts] * size if np.ndim(counts) == 0 else counts)]
    except TypeError:
        raise TypeError(f"{name}={counts!r} is not a sequence of {size} integers") from None
    if len(numbers) != size:
        items = f"{len(numbers)} item{'s' * (len(numbers) != 1)}"
        raise ValueError(f"{name} has {items}; expected {size}, one for each rank")
    if any(n < 0 for n in numbers):
        raise ValueError(f"{name}={numbers} has negative entries")
    return numbers


def _receive(primitive: Primitive, recvbuf: Any) -> CheckedBuffers:
    if recvbuf is None:
        raise TypeError(f"recvbuf=None: {primitive.name} requires a receive buffer on ranks other than the root")
    recv = recv_array("recvbuf", recvbuf)
    return CheckedBuffers(None, recv, recv.size, recv.dtype, False, recvbuf)


def _bcast(buf: Any, is_root: bool) -> CheckedBuffers:
    # the buffer of the root is only read, so it may be read-only; a gap is an error on all ranks, so none waits
    if is_root:
        array = as_array("buf", buf)
        check_contiguous("buf", array)
    else:
        array = recv_array("buf", buf)
    return CheckedBuffers(None, array, array.size, array.dtype, is_root, buf, read_only=is_root)


def _in_place(primitive: Primitive, recvbuf: Any, size: int) -> CheckedBuffers:
    if recvbuf is None:
        raise TypeError("sendbuf=MPI.IN_PLACE requires a receive buffer that holds the input")
    recv = recv_array("recvbuf", recvbuf)
    spans_all = primitive.takes_all or primitive.gives_all
    count = _blocks("recvbuf", recv, size) if spans_all else recv.size
    result = recvbuf
    if primitive.takes_all and not primitive.gives_all:  # reduce_scatter puts its block at the beginning
        result = recv.reshape(-1)[:count]
    return CheckedBuffers(None, recv, count, recv.dtype, True, result)


def _blocks(name: str, array: Array, size: int) -> int:
    count, rest = divmod(int(array.size), size)
    if rest:
        raise ValueError(f"{name} has {array.size} elements, which cannot be divided evenly among {size} ranks")
    return count


def _check_pair(send: Array, recv: Array, needed: int) -> None:
    if send.dtype != recv.dtype:
        raise TypeError(f"sendbuf has dtype {send.dtype}, recvbuf has dtype {recv.dtype}")
    if recv.size != needed:
        raise ValueError(f"recvbuf has {recv.size} elements, but {needed} are received")


IN_PLACE_HINT = "; pass MPI.IN_PLACE to reduce or exchange in place"


def is_same(send: Array, recv: Array) -> bool:
    """Whether two contiguous arrays are the same memory."""
    return bool(send.nbytes) and (address(send), send.nbytes) == (address(recv), recv.nbytes)


def copied(array: Array, before: list[Action]) -> Array:
    """An array into which `before` will copy this one."""
    copy = allocate_like(array, array.shape)
    before.append(copying(copy, array))
    return copy


def check_apart(send: Array, recv: Array, hint: str = "") -> None:
    """Raise ValueError if two contiguous arrays overlap."""
    if overlap(address(recv), recv.nbytes, address(send), send.nbytes):
        raise ValueError(f"sendbuf and recvbuf overlap in memory{hint}")


def result_shape(primitive: Primitive, shape: tuple[int, ...], count: int, size: int) -> tuple[int, ...]:
    """The shape of an allocated result, for a send buffer of this shape."""
    if primitive.takes_all == primitive.gives_all:
        return shape
    if primitive.gives_all:
        return (size, *shape)
    if len(shape) > 1 and shape[0] == size:
        return shape[1:]
    if shape and shape[0] % size == 0:
        return (shape[0] // size, *shape[1:])
    return (count // size,)

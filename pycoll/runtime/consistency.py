"""Compares the arguments of each call across ranks before it runs, with PYCOLL_CHECK=1."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.ops import Operation
from ..base.errors import MismatchError
from ..base.numbers import ranks_named
from ..compiler.program_key import Extents, ProgramKey, side_by_side
from ..compiler.programs import compiled
from ..schedule.registry import find
from .executable import Executable

_LENGTH = np.dtype("i8")


class Failed(NamedTuple):
    """The message of a rank whose own arguments are wrong."""

    primitive: str
    error: str


class Fingerprint(NamedTuple):
    """The properties that must be equal on all ranks, and the bytes to be sent to and received from each rank."""

    same: dict[str, Any]
    sends: list[int] | None
    recvs: list[int] | None


def fingerprint(
    key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None, typed: bool, form: str
) -> Fingerprint:
    """The fingerprint of a call, which a rank sends to the others."""
    primitive = key.algorithm.primitive
    same: dict[str, Any] = {"primitive": primitive.name, "form": form, "algorithm": key.algorithm.name}
    same["longest"] = key.longest
    if primitive.rooted:
        same["root"] = key.root
    if operation:
        same["op"] = operation.name
        same["commutative"] = operation.commutative
    elements = buffers.elements or (str(buffers.dtype) if typed else "")
    if elements and not (buffers.send is None and buffers.recv is None):
        same["dtype"] = elements
    varies = bool(key.sends or key.recvs or key.neighbors)
    if primitive.name == "reduce_scatter":  # some ranks may pass counts, and others may not
        same["recvcounts"] = _sizes(key.sends) if varies else [key.length * key.itemsize] * key.size
    elif primitive.name == "allgatherv":
        same["recvcounts"] = _sizes(key.recvs)
    elif not varies:
        same["count" if primitive.reduces else "bytes"] = key.length
    if not varies:
        same["segments"] = key.segments
    if key.algorithm.needs_stencil:  # blocks pass through ranks that have others
        same["bytes"] = sorted({*(_sizes(key.sends) or ()), *(_sizes(key.recvs) or ())})
    if key.neighbors:
        return Fingerprint(same, *_by_neighbor(key))
    if not primitive.varies:
        return Fingerprint(same, None, None)
    sends = _sizes(key.sends)
    if key.in_place and not primitive.takes_all and sends:  # the input is one of the blocks of the output
        sends = sends[key.rank : key.rank + 1]
    return Fingerprint(same, sends, _sizes(key.recvs))


def _by_neighbor(key: ProgramKey) -> tuple[list[int], list[int]]:
    """The bytes to and from each rank, along all edges together."""
    assert key.neighbors and key.sends is not None and key.recvs is not None
    sends, recvs = [0] * key.size, [0] * key.size
    for edge, (_, nbytes) in zip(key.neighbors.outgoing, key.sends):
        if edge:
            sends[edge.to] += nbytes
    for edge, (_, nbytes) in zip(key.neighbors.incoming, key.recvs):
        if edge:
            recvs[edge.source] += nbytes
    return sends, recvs


def _sizes(extents: Extents | None) -> list[int] | None:
    return None if extents is None else [size for _, size in extents]


def compare(
    key: ProgramKey,
    buffers: CheckedBuffers,
    operation: Operation | None,
    typed: bool,
    form: str,
    bind: Callable[..., Executable],
) -> Iterator[Executable]:
    """The parts that exchange fingerprints between all ranks; raises MismatchError if these do not match."""
    received: list[Any] = []
    yield from exchange(key.rank, key.size, fingerprint(key, buffers, operation, typed, form), received, bind)
    if next(differences(received), None):
        raise mismatch(received)


def mismatch(received: list[Any]) -> MismatchError:
    """The error that lists the differences."""
    return MismatchError(f"the calls of the ranks do not match: {'; '.join(differences(received))}")


def differences(received: list[Any]) -> Iterator[str]:
    """The differences, in words."""
    for rank, one in enumerate(received):
        if isinstance(one, Failed):
            yield f"on rank {rank} the call of {one.primitive} has wrong arguments ({one.error})"
    right = {rank: one for rank, one in enumerate(received) if isinstance(one, Fingerprint)}
    primitives = {one.same["primitive"] for one in right.values()}
    keys = (
        ["primitive"] if len(primitives) > 1 else list(dict.fromkeys(key for one in right.values() for key in one.same))
    )
    different = 0
    for key in keys:
        values = defaultdict(list)
        for rank, one in right.items():
            if key in one.same:
                values[repr(one.same[key])].append(rank)
        if len(values) > 1:
            different += 1
            yield f"{key} differs: " + "; ".join(f"{value} ({ranks_named(ranks)})" for value, ranks in values.items())
    if not different:
        yield from _pairs(right)


def _pairs(received: dict[int, Fingerprint]) -> Iterator[str]:
    """The pairs of ranks where the receiver expects another number of bytes than the sender sends."""
    for source, sender in received.items():
        for to, receiver in received.items():
            sent = _between(sender.sends, to)
            expected = _between(receiver.recvs, source)
            if sent is not None and expected is not None and sent != expected:
                yield f"rank {source} sends {sent} bytes to rank {to}, which expects {expected}"


def _between(sizes: list[int] | None, peer: int) -> int | None:
    """The bytes for a peer; a single size is for the root, or for each rank."""
    if not sizes:
        return None
    return sizes[peer] if len(sizes) > 1 else sizes[0]


def exchange(
    rank: int, size: int, mine: Any, received: list[Any], bind: Callable[..., Executable]
) -> Iterator[Executable]:
    """The parts that gather the objects `mine` of all ranks in the list `received`, on all ranks."""
    text = pickle.dumps(mine)
    lengths = np.zeros(size, _LENGTH)
    lengths[rank] = len(text)
    yield _allgather(rank, lengths, [_LENGTH.itemsize] * size, bind)
    extents = side_by_side([int(n) for n in lengths])
    everything = np.zeros(int(lengths.sum()), np.uint8)
    start, length = extents[rank]
    everything[start : start + length] = np.frombuffer(text, np.uint8)
    yield _allgather(rank, everything, [int(n) for n in lengths], bind)
    received += [pickle.loads(everything[start : start + length].tobytes()) for start, length in extents]


def _allgather(rank: int, table: np.ndarray, sizes: list[int], bind: Callable[..., Executable]) -> Executable:
    extents = side_by_side(sizes)
    key = ProgramKey(find("allgatherv", "bruck"), rank, len(sizes), 0, 0, 1, True, 1, 1 << 30, extents, extents)
    return bind(compiled(key), CheckedBuffers(None, table, 0, table.dtype, True, None))

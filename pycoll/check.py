"""With PYCOLL_CHECK=1: the ranks compare the arguments of each call before they run it."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .binding import Bound
from .buffers import Arguments
from .errors import MismatchError
from .layout import Call, Extents, compiled, side_by_side
from .ops import Operation
from .schedule import find

_LENGTH = np.dtype("i8")


class Failed(NamedTuple):
    """What a rank tells whose own arguments are wrong."""

    primitive: str
    error: str


class Fingerprint(NamedTuple):
    """What must be the same on all ranks, and the bytes that a rank means to send to and receive from each."""

    same: dict[str, Any]
    sends: list[int] | None
    recvs: list[int] | None


def fingerprint(call: Call, arguments: Arguments, operation: Operation | None, typed: bool) -> Fingerprint:
    """What a rank tells the others of its call."""
    primitive = call.algorithm.primitive
    same: dict[str, Any] = {"primitive": primitive.name, "algorithm": call.algorithm.name, "longest": call.longest}
    if primitive.rooted:
        same["root"] = call.root
    if operation:
        same["op"] = operation.name
        same["commutative"] = operation.commutative
    if typed and (arguments.send is not None or arguments.recv is not None):
        same["dtype"] = str(arguments.dtype)
    varies = bool(call.sends or call.recvs)
    if not varies:
        same["count" if primitive.reduces else "bytes"] = call.length
        same["segments"] = call.segments
    if primitive.name == "allgatherv":
        same["recvcounts"] = _sizes(call.recvs)
    elif primitive.name == "reduce_scatter" and varies:
        same["recvcounts"] = _sizes(call.sends)
    if not primitive.varies:
        return Fingerprint(same, None, None)
    sends = _sizes(call.sends)
    if call.in_place and not primitive.takes_all and sends:  # the input lies among the blocks of the output
        sends = sends[call.rank : call.rank + 1]
    return Fingerprint(same, sends, _sizes(call.recvs))


def _sizes(extents: Extents | None) -> list[int] | None:
    return None if extents is None else [size for _, size in extents]


def compare(
    call: Call, arguments: Arguments, operation: Operation | None, typed: bool, bind: Callable[..., Bound]
) -> Iterator[Bound]:
    """The parts in which fingerprints go to all ranks; MismatchError if they do not fit together."""
    told: list = []
    yield from exchange(call.rank, call.size, fingerprint(call, arguments, operation, typed), told, bind)
    if next(differences(told), None):
        raise mismatch(told)


def mismatch(told: list) -> MismatchError:
    """The error that says what does not fit."""
    return MismatchError(f"the ranks' calls do not fit together: {'; '.join(differences(told))}")


def differences(told: list) -> Iterator[str]:
    """What does not fit, in words."""
    for rank, one in enumerate(told):
        if isinstance(one, Failed):
            yield f"on rank {rank} the call of {one.primitive} has wrong arguments ({one.error})"
    right = {rank: one for rank, one in enumerate(told) if isinstance(one, Fingerprint)}
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
            yield f"{key} is " + ", ".join(f"{value} on {_ranks(ranks)}" for value, ranks in values.items())
    if not different:
        yield from _pairs(right)


def _pairs(told: dict[int, Fingerprint]) -> Iterator[str]:
    """Where one rank means to send what the other does not expect."""
    for source, sender in told.items():
        for to, receiver in told.items():
            sent = _between(sender.sends, to)
            expected = _between(receiver.recvs, source)
            if sent is not None and expected is not None and sent != expected:
                yield f"rank {source} sends {sent} bytes to rank {to}, which expects {expected}"


def _between(sizes: list[int] | None, peer: int) -> int | None:
    """The bytes for a peer; one size alone is for the root, or for each rank."""
    if not sizes:
        return None
    return sizes[peer] if len(sizes) > 1 else sizes[0]


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def exchange(rank: int, size: int, mine: Any, told: list, bind: Callable[..., Bound]) -> Iterator[Bound]:
    """The parts in which every rank's object goes to all; they are in `told` at the end."""
    text = pickle.dumps(mine)
    lengths = np.zeros(size, _LENGTH)
    lengths[rank] = len(text)
    yield _allgather(rank, lengths, [_LENGTH.itemsize] * size, bind)
    places = side_by_side([int(n) for n in lengths])
    everything = np.zeros(int(lengths.sum()), np.uint8)
    start, length = places[rank]
    everything[start : start + length] = np.frombuffer(text, np.uint8)
    yield _allgather(rank, everything, [int(n) for n in lengths], bind)
    told += [pickle.loads(everything[start : start + length].tobytes()) for start, length in places]


def _allgather(rank: int, table: np.ndarray, sizes: list[int], bind: Callable[..., Bound]) -> Bound:
    places = side_by_side(sizes)
    call = Call(find("allgatherv", "bruck"), rank, len(sizes), 0, 0, 1, True, 1, 1 << 30, places, places)
    return bind(compiled(call), Arguments(None, table, 0, table.dtype, True, None), None)

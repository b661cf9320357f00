"""Which algorithm runs.

It is the one that the call asks for, or its communicator, or the environment; else the one that was measured to be the
fastest on this machine (`pycoll.tuning`), or that the rules say (`pycoll.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from . import engine, native, settings
from .engine import Channel
from .ops import Operation, resolve
from .rules import choose
from .schedule import PRIMITIVES, algorithms_of, find
from .tuning import Candidate


class Kind(NamedTuple):
    """What a choice depends on, which is the same on all ranks.

    `nbytes` are those of the vector, or of one rank's block; `native` says that MPI's own collective would do what
    pycoll's algorithms do.
    """

    primitive: str
    nbytes: int
    commutative: bool = True
    native: bool = False


class Choice(NamedTuple):
    """An algorithm, why, and the bytes of its segments if they are not those that are set."""

    algorithm: str
    reason: str
    segment: int | None = None


def select(channel: Channel, asked: str | None, kind: Kind) -> Choice:
    """The choice for a call that asks for the algorithm `asked`, or None."""
    primitive, nbytes, commutative, may_be_native = kind
    if asked is not None:
        return Choice(asked, "as the call asks")
    if name := channel.choices.of(primitive):
        reason = "as the communicator's `algorithm` asks"
    elif name := settings.algorithm_from_environment(primitive):
        reason = f"as PYCOLL_{primitive.upper()} asks"
    if name and (commutative or find(primitive, name).ordered):
        return Choice(name, reason)
    name = choose(primitive, nbytes, channel.size, commutative, channel.host_count)
    if channel.tuned and (best := channel.tuned.best(primitive, nbytes, commutative, may_be_native, name)):
        reason = "as it was measured to be the fastest"
        if best == Candidate(name):
            reason = "by the rules, and measured to be as good as the fastest"
        return Choice(best.algorithm, reason, best.segment)
    reason = "by the rules for its size" + ("" if commutative else " and an operation that does not commute")
    return Choice(name, reason)


def native_is_same(channel: Channel, nbytes: int, dtype: np.dtype, op: Operation | None) -> bool:
    """Whether MPI's own blocking collective may stand in for an algorithm of pycoll's; the same on all ranks.

    Not where it would give other results, nor for more bytes than some libraries can count, nor where a rank may
    have buffers on a GPU, nor on communicators with nonblocking collectives: these do not go on while MPI blocks.
    """
    alike = op is None or native.same_arithmetic(dtype, op)
    small = nbytes * channel.size < 1 << 31
    return alike and small and channel.known.host_memory and not channel.nonblocking and not settings.TIMEOUT


@dataclass(frozen=True)
class Explanation:
    """What would be chosen for a call, and why; `str` tells it in words.

    `seconds` has what the tuning file says of each candidate, if one is in use.
    """

    primitive: str
    nbytes: int
    ranks: int
    hosts: int
    algorithm: str
    segment: int | None
    reason: str
    tuning: str
    seconds: dict[Candidate, float]

    def __str__(self) -> str:
        where = f"{self.ranks} ranks on {self.hosts} host{'s' * (self.hosts > 1)}"
        name = str(Candidate(self.algorithm, self.segment))
        lines = [f"{self.primitive} of {self.nbytes} bytes on {where}: {name}, {self.reason}", f"tuning: {self.tuning}"]
        for candidate, seconds in sorted(self.seconds.items(), key=lambda item: item[1]):
            lines.append(f"  {candidate!s:24} {seconds * 1e6:10.1f} us")
        return "\n".join(lines)


def explain(
    primitive: str,
    *,
    nbytes: int,
    comm: MPI.Intracomm | None = None,
    op: MPI.Op | str = MPI.SUM,
    dtype: Any = np.float32,
    algorithm: str | None = None,
) -> Explanation:
    """Say which algorithm a blocking call would get, and why; nothing is run.

    `nbytes` are those of the vector for bcast, reductions to vectors and scans, of one rank's block for the
    others.  `op` and `dtype` matter to reductions.  Raises ValueError for an unknown primitive or algorithm.  The
    first time on a communicator, all its ranks must call this together, as `pycoll.attach`.
    """
    algorithms_of(primitive)
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes} is negative")
    channel = engine.attach(comm)
    operation = resolve(op) if PRIMITIVES[primitive].reduces else None
    commutative = operation is None or operation.commutative
    kind = Kind(primitive, nbytes, commutative, native_is_same(channel, nbytes, np.dtype(dtype), operation))
    choice = select(channel, algorithm, kind)
    find(primitive, choice.algorithm)
    tuned = channel.tuned
    return Explanation(
        primitive,
        nbytes,
        channel.size,
        channel.host_count,
        *(choice.algorithm, choice.segment, choice.reason),
        channel.tuning_state,
        tuned.times(primitive, nbytes) if tuned else {},
    )

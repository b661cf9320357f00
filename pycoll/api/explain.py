"""`pycoll.explain`: which algorithm a call would get, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.ops import OpName, resolve
from ..runtime.attach import attach, tuning_state
from ..runtime.dispatch import native_is_same
from ..schedule.registry import PRIMITIVES, algorithms_of, find
from ..selection.select import SelectionKey, select
from ..selection.tuning_file import Candidate


@dataclass(frozen=True)
class Explanation:
    """The algorithm that a call would get, and why; `str` gives it in words.

    `seconds` has the time of each candidate in the tuning file, if one is in use.
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
    op: MPI.Op | OpName = MPI.SUM,
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
    channel = attach(comm)
    operation = resolve(op) if PRIMITIVES[primitive].reduces else None
    commutative = operation is None or operation.commutative
    key = SelectionKey(
        primitive, nbytes, commutative, native_is_same(channel, primitive, nbytes, np.dtype(dtype), operation)
    )
    choice = select(algorithm, key, channel.facts, channel.choices, channel.tuned)
    find(primitive, choice.algorithm)
    tuned = channel.tuned
    return Explanation(
        primitive,
        nbytes,
        channel.size,
        channel.facts.host_count,
        *(choice.algorithm, choice.segment, choice.reason),
        tuning_state(channel),
        tuned.times(primitive, nbytes) if tuned else {},
    )

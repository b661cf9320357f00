"""`pycoll.explain`: the algorithm that a call would run, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.ops import OpName, resolve
from ..runtime.attach import attach, tuning_state
from ..runtime.dispatch import native_is_same
from ..runtime.sharing import can_share, uses_registered
from ..runtime.slots import serves
from ..schedule.registry import PRIMITIVES, algorithms_of, find
from ..selection.select import SelectionKey, registered_limit, select
from ..selection.tuning_file import Candidate


@dataclass(frozen=True)
class Explanation:
    """The algorithm that a call would run, and why; `str()` returns a readable description.

    Attributes
    ----------
    primitive : str
        The collective.
    nbytes : int
        The size of the call, in bytes.
    ranks : int
        The size of the communicator.
    hosts : int
        The number of its hosts.
    algorithm : str
        The name of the algorithm.
    segment : int or None
        The length of a segment in bytes; None for the default.
    shared_memory : bool
        Whether the call runs in memory that the ranks of the host share, without messages; `algorithm` is then "naive".
    reason : str
        Why the algorithm was chosen.
    registered : bool
        Whether blocking calls use registered buffers of this size directly, without messages for the data inside a
        host.
    registered_from : int or None
        The smallest size for which they are used; None if such calls use none on this communicator.  It is larger
        for nonblocking calls, and still larger for persistent ones.
    registered_reason : str
        Where this size comes from: "by the rules" or "by measurement".
    tuning : str
        The tuning file in use, or why there is none.
    seconds : dict of Candidate to float
        The measured time of each candidate; empty without a tuning file.
    """

    primitive: str
    nbytes: int
    ranks: int
    hosts: int
    algorithm: str
    segment: int | None
    shared_memory: bool
    reason: str
    registered: bool
    registered_from: int | None
    registered_reason: str
    tuning: str
    seconds: dict[Candidate, float]

    def __str__(self) -> str:
        where = f"{self.ranks} ranks on {self.hosts} host{'s' * (self.hosts > 1)}"
        name = "shared memory" if self.shared_memory else str(Candidate(self.algorithm, self.segment))
        lines = [f"{self.primitive} of {self.nbytes} bytes on {where}: {name}, {self.reason}"]
        if self.registered_from is not None:
            inside = " inside a host" * (self.hosts > 1)
            used = f"used directly, without messages for the data{inside}" if self.registered else "not used"
            limit = f"the least size is {self.registered_from} bytes, {self.registered_reason}"
            lines.append(f"registered buffers: {used} ({limit})")
        lines.append(f"tuning: {self.tuning}")
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
    """Return the algorithm that a blocking call would run, and why; nothing is run.

    The first time on a communicator, all its ranks must call this together, as with `pycoll.attach`.

    Parameters
    ----------
    primitive : str
        The collective, for example "allreduce".
    nbytes : int
        The size in bytes: of the vector for bcast, reduce, allreduce, scan and exscan; of the block of one rank for
        the others.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.
    op : MPI.Op or str, default MPI.SUM
        The operation of a reduction, or its name.
    dtype : dtype, default float32
        The dtype of a reduction.
    algorithm : str, optional
        The algorithm that the call names.

    Returns
    -------
    Explanation
        The algorithm and the reason; ``print`` it.

    Raises
    ------
    TypeError
        For an `nbytes` that is not an integer.
    ValueError
        If the primitive or the algorithm is unknown, or `nbytes` is negative.
    """
    algorithms_of(primitive)
    if not isinstance(nbytes, int | np.integer):
        raise TypeError(f"nbytes must be an integer, not {nbytes!r}")
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes} is negative")
    channel = attach(comm)
    operation = resolve(op) if PRIMITIVES[primitive].reduces else None
    commutative = operation is None or operation.commutative
    native = native_is_same(channel, primitive, nbytes, np.dtype(dtype), operation)
    registered, tuned = can_share(channel, primitive, operation), channel.tuned
    in_slots = serves(channel, primitive, np.dtype(dtype), operation)
    key = SelectionKey(primitive, nbytes, commutative, native, registered=registered, slots=in_slots)
    choice = select(algorithm, key, channel.facts, channel.choices, tuned)
    limit, source = registered_limit(primitive, tuned) if registered else (None, "")
    return Explanation(
        primitive,
        nbytes,
        channel.size,
        channel.facts.host_count,
        *(choice.algorithm, choice.segment, choice.slots, choice.reason),
        uses_registered(channel, find(primitive, choice.algorithm), nbytes, operation),
        limit,
        source,
        tuning_state(channel),
        tuned.times(primitive, nbytes) if tuned else {},
    )

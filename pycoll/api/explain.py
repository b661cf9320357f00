"""`pycoll.explain`: the algorithm that a call would run, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.ops import Operation, OpName, resolve
from ..compiler.listing import Listing, listing, slot_listing
from ..compiler.programs import compiled, with_division
from ..compiler.slots import slot_program
from ..runtime import native, slots
from ..runtime.attach import attach
from ..runtime.channel import Channel
from ..runtime.dispatch import check_root, check_topology, program_key
from ..runtime.registered_calls import can_use_registered, uses_registered
from ..runtime.tuned import tuning_state
from ..schedule.neighbors import check_stencil
from ..schedule.registry import COLLECTIVES, NATIVE, Algorithm, algorithms_of, find
from ..selection.select import BY_RULES, Choice, SelectionKey, registered_limit, select
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
    steps : Listing or None
        What this rank does, step by step, if it was asked for; ``steps.as_json()`` returns it for `json.dump`.
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
    steps: Listing | None = None

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
        lines += [str(self.steps)] if self.steps else []
        return "\n".join(lines)


def explain(
    primitive: str,
    *,
    nbytes: int,
    comm: MPI.Comm | None = None,
    op: MPI.Op | OpName = MPI.SUM,
    dtype: Any = np.float32,
    algorithm: str | None = None,
    root: int = 0,
    steps: bool = False,
) -> Explanation:
    """Return the algorithm that a blocking call would run, and why; nothing is run.

    The first time on a communicator, all its ranks must call this together, as with `pycoll.attach`.

    Parameters
    ----------
    primitive : str
        The collective, for example "allreduce".
    nbytes : int
        The size in bytes: of the vector for bcast, reduce, allreduce, scan and exscan; of the block of one rank for
        the others, and of the block for one neighbor between neighbors.
    comm : MPI.Intracomm, optional
        The communicator; COMM_WORLD by default.  Collectives between neighbors need one with a topology.
    op : MPI.Op or str, default MPI.SUM
        The operation of a reduction, or its name.
    dtype : dtype, default float32
        The dtype of a reduction.
    algorithm : str, optional
        The algorithm that the call names.
    root : int, default 0
        The root of a rooted collective.
    steps : bool, default False
        Whether to list what this rank does, for buffers in host memory and blocks of equal length.

    Returns
    -------
    Explanation
        The algorithm and the reason; ``print`` it.

    Raises
    ------
    TypeError
        For an `nbytes` that is not an integer.
    ValueError
        If the primitive or the algorithm is unknown or cannot run on the topology of `comm` or with the places of its
        ranks, `nbytes` is negative, `root` is not a rank, or `op` is "exact_sum".
    WrongCommunicator
        If a collective between neighbors has a communicator without a topology.
    """
    algorithms_of(primitive)
    known = COLLECTIVES[primitive]
    if not isinstance(nbytes, int | np.integer):
        raise TypeError(f"nbytes must be an integer, not {nbytes!r}")
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes} is negative")
    channel = attach(comm)
    check_root(root, channel.size)
    if known.near:
        check_topology(primitive, channel.topology)
    dtype, operation = np.dtype(dtype), resolve(op) if known.reduces else None
    if operation and operation.exact:
        raise ValueError("op=EXACT_SUM consists of calls that move blocks: explain those, for example alltoall")
    commutative = operation is None or operation.commutative
    same = native.native_is_same(channel.facts, channel.nonblocking, primitive, nbytes, dtype, operation)
    registered, tuned = can_use_registered(channel, primitive, operation), channel.tuned
    in_slots = slots.serves(channel, primitive, dtype, operation)
    key = SelectionKey(primitive, nbytes, commutative, same, registered=registered, slots=in_slots)
    choice = select(algorithm, key, channel.facts, channel.choices, tuned)
    chosen = find(primitive, choice.algorithm)
    channel.facts.hosts_for(chosen)  # raises the error of the call if levels split a host unevenly
    if channel.topology and chosen.needs_stencil:
        check_stencil(channel.topology.neighbors.stencil)
    if known.near and choice.reason == BY_RULES:
        choice = choice._replace(reason=f"{BY_RULES}, without slots because {slots.why_not(channel, primitive)}")
    limit, source = registered_limit(primitive, tuned) if registered else (None, "")
    return Explanation(
        primitive,
        nbytes,
        channel.size,
        channel.facts.host_count,
        *(choice.algorithm, choice.segment, choice.slots, choice.reason),
        uses_registered(channel, chosen, nbytes, operation),
        limit,
        source,
        tuning_state(channel),
        tuned.times(primitive, nbytes) if tuned else {},
        _steps(channel, choice, chosen, nbytes, dtype, operation, root) if steps else None,
    )


def _steps(
    channel: Channel,
    choice: Choice,
    chosen: Algorithm,
    nbytes: int,
    dtype: np.dtype,
    operation: Operation | None,
    root: int,
) -> Listing:
    """What this rank does in a call on contiguous buffers."""
    mean = bool(operation and operation.mean)
    key = program_key(channel, chosen, choice, nbytes, dtype.itemsize if operation else 1, root)
    if channel.topology and chosen.primitive.near:
        key = key.between(channel.topology.neighbors_for(chosen))
    where = f"rank {key.rank} of {key.size}"
    if choice.slots:
        return slot_listing(f"{chosen.primitive.name} in slots, {where}:", slot_program(key, mean))
    if chosen.name == NATIVE:
        return listing(f"{chosen}, {where}:", native.program(key, "blocking"))
    program = compiled(key.with_equal_counts())
    return listing(f"{chosen}, {where}:", with_division(program, nbytes) if mean else program)

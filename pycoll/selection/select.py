"""Selects the algorithm of a call.

It is the one requested by the call, its communicator, or the environment, in this order.  Otherwise, it is the one that
was measured to be the fastest (`pycoll.selection.tuning_file`), or the one of the rules (`pycoll.selection.rules`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..base.domains import KINDS, UNKNOWN
from ..schedule.hosts import Hosts
from ..schedule.registry import NATIVE, NEIGHBORHOODS, Algorithm, algorithms_of, find
from .choices import Choices, algorithm_from_environment
from .rules import PACKED, REGISTERED_FROM, choose, native_is_faster, slots_up_to
from .tuning_file import SHARED_MEMORY, Candidate, Tuned

BY_MEASUREMENT = "by measurement"
SLOTS = "by the rules inside a host"
BY_RULES = "by the rules"
GAPS = "by the rules for datatypes with gaps, which MPI packs faster than Python"
FASTER_IN_MPI = "by the rules for calls of pycoll.Comm without shared memory, where MPI is faster"


class SelectionKey(NamedTuple):
    """The facts that a choice depends on, which are the same on all ranks.

    `nbytes` is the size of the vector, or of the block of one rank.  `native` is True if the native collective gives
    the same results as the algorithms of pycoll; `from_comm` is True if, in addition, the call is one of `pycoll.Comm`
    that may be left to MPI for speed.  `registered` is True if the communicator has registered memory that such a call
    can use.  `slots` is True if the ranks share a host, and can run such calls in its memory; `near` is True if their
    messages travel through it.
    """

    primitive: str
    nbytes: int
    commutative: bool = True
    native: bool = False
    from_comm: bool = False
    registered: bool = False
    slots: bool = False
    near: bool = False


class Choice(NamedTuple):
    """An algorithm, the reason, and the size of its segments in bytes; None for the default size.

    With `slots`, the call runs in memory of the host, without messages.
    """

    algorithm: str
    reason: str
    segment: int | None = None
    slots: bool = False


@dataclass(frozen=True)
class CommFacts:
    """Facts that all ranks of a communicator know about each other; communicators created from it inherit them."""

    hosts: tuple[int, ...]  # the host of each rank, as a number
    one_tuning_file: bool = True  # all ranks have the same tuning file, or none
    host_memory: bool = True  # no rank can have buffers on a GPU
    library: str = ""  # the name of the MPI library
    cuda_aware: bool = False  # on all ranks, MPI can access GPU memory
    core: bool = False  # all ranks run programs in the compiled core
    native: bool = False  # no rank has set PYCOLL_NATIVE=0, and all have MPI_THREAD_MULTIPLE
    cores: int = 1  # of the host with the fewest
    domains: tuple[
        tuple[int, ...], ...
    ] = ()  # the domains of each rank, as in `pycoll.base.domains`; none if not known

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    @cached_property
    def host_count(self) -> int:
        """The number of hosts."""
        return len(set(self.hosts))

    def hosts_for(self, algorithm: Algorithm) -> Hosts:
        """The hosts of the ranks, or their domains, as an algorithm needs them; None if it needs neither."""
        if not algorithm.knows_hosts:
            return None
        if not algorithm.levels:
            return self.hosts
        if algorithm.levels not in self._known:
            columns = [self._domains(level) for level in algorithm.levels]
            for level, column in zip(algorithm.levels, columns):
                if level != "node":
                    self._check_even(level, column)
            self._known[algorithm.levels] = tuple(zip(*columns))
        return self._known[algorithm.levels]

    @cached_property
    def _known(self) -> dict[tuple[str, ...], Hosts]:
        """The domains of the ranks by their levels."""
        return {}

    def algorithms_for(self, primitive: str) -> list[str]:
        """The names of the algorithms that can run here: those in levels need hosts that the levels split evenly."""
        return [name for name, algorithm in algorithms_of(primitive).items() if self.can_run(algorithm)]

    def can_run(self, algorithm: Algorithm) -> bool:
        """Whether the levels of an algorithm, if it has some, split the hosts evenly."""
        try:
            self.hosts_for(algorithm)
        except ValueError:
            return False
        return True

    def _check_even(self, level: str, domains: Sequence[int]) -> None:
        """Raise ValueError if a level splits a host into domains with different numbers of ranks."""
        sizes: dict[int, list[int]] = {}
        for (host, _), count in Counter(zip(self.hosts, domains)).items():
            sizes.setdefault(host, []).append(count)
        for host, counts in sizes.items():
            if len(set(counts)) > 1:
                parts = " and ".join(map(str, counts))
                raise ValueError(
                    f"the level {level} splits host {host} unevenly, into domains of {parts} ranks: place the ranks "
                    "evenly, or name an algorithm without this level"
                )

    def _domains(self, level: str) -> Sequence[int]:
        """A number for each rank, the same in each domain; a host whose domains are not known is one domain."""
        if level == "node" or not self.domains:
            return self.hosts
        kind = KINDS.index(level)
        found = [(host, own[kind]) for host, own in zip(self.hosts, self.domains)]
        unknown = {host for host, number in found if number == UNKNOWN}
        numbers: dict[tuple[int, int], int] = {}
        return [
            numbers.setdefault((host, UNKNOWN if host in unknown else number), len(numbers)) for host, number in found
        ]

    @cached_property
    def oversubscribed(self) -> bool:
        """Whether ranks share cores, so that one may have to wait for the core of another."""
        return max(Counter(self.hosts).values()) > self.cores

    @cached_property
    def firsts(self) -> list[int]:
        """For each rank, the first rank on its host."""
        first: dict[int, int] = {}
        return [first.setdefault(host, rank) for rank, host in enumerate(self.hosts)]

    def on_host_of(self, rank: int) -> list[int]:
        """The ranks on the host of a rank."""
        return [other for other, host in enumerate(self.hosts) if host == self.hosts[rank]]


def registered_limit(primitive: str, tuned: Tuned | None) -> tuple[int, str]:
    """The smallest size for which registered buffers are used, and where it comes from."""
    measured = tuned.registered_from(primitive, REGISTERED_FROM) if tuned else None
    return (REGISTERED_FROM, "by the rules") if measured is None else (measured, BY_MEASUREMENT)


def select(asked: str | None, key: SelectionKey, facts: CommFacts, choices: Choices, tuned: Tuned | None) -> Choice:
    """The choice for a call that requests the algorithm `asked`, or None.

    `choices` are the choices for the communicator; `tuned` is the measurement that fits it.
    """
    primitive, nbytes, commutative, may_be_native, from_comm, registered, slots, near = key
    if asked is not None:
        return Choice(asked, "requested by the call")
    if name := choices.of(primitive):
        reason = "set by comm.algorithm"
    elif name := algorithm_from_environment(primitive):
        reason = f"set by PYCOLL_{primitive.upper()}"
    if name and (commutative or find(primitive, name).ordered):
        return Choice(name, reason)
    if primitive in NEIGHBORHOODS:
        if slots and nbytes <= slots_up_to(primitive):
            return Choice("direct", SLOTS, slots=True)
        return Choice(NATIVE, GAPS) if from_comm and primitive in PACKED else Choice("direct", BY_RULES)
    name = choose(primitive, nbytes, facts.size, commutative, facts.host_count)
    limit, source = registered_limit(primitive, tuned) if registered else (0, "")
    shared = source == BY_MEASUREMENT and nbytes >= limit  # all algorithms of pycoll take the same time then
    faster = registered and nbytes >= limit
    in_slots = slots and not faster and nbytes <= slots_up_to(primitive)
    expected = SHARED_MEMORY if in_slots else name
    native, slots = may_be_native and not shared, slots and not shared
    best = tuned.best(primitive, nbytes, commutative, native, expected, slots) if tuned else None
    if best and facts.can_run(find(primitive, best.schedule)):
        reason = "measured to be the fastest"
        if best == Candidate(expected):
            reason = "by the rules, and measured to be as good as the fastest"
        if shared:
            reason += f" without native; registered buffers were measured to be faster from {limit} bytes"
        return Choice(best.schedule, reason, best.segment, best.algorithm == SHARED_MEMORY)
    if in_slots:
        return Choice("naive", SLOTS, slots=True)
    if from_comm and not ((near and primitive not in PACKED) or faster):
        hosts = facts.host_count if facts.core else 1  # the rules between hosts are about programs in the core
        if native_is_faster(primitive, nbytes, facts.library, facts.size, hosts):
            return Choice(NATIVE, FASTER_IN_MPI)
    return Choice(
        name, "by the rules for its size" + ("" if commutative else " and an operation that does not commute")
    )

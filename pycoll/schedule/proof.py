"""The proof of an algorithm: it executes all ranks of a schedule on symbols instead of data.

`prove` runs every rank under the rules of `pycoll.schedule.moves`.  It raises `ProofError` unless:

- each rank ends with exactly the contributions that its primitive promises, each of them once;
- contributions are combined in rank order, if the algorithm promises that;
- all ranks combine in the same order, and therefore get the same bits;
- there is no deadlock, and every message is received.

It returns the operations that it counted as `Counts`.

A round runs only together with the matching rounds of all its partners.  This is stricter than the rendezvous protocol
of MPI.  It allows the compiler to cut messages into windows of segments without deadlock, see `pycoll.compiler.lower`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ..base.numbers import listed, ranks_named
from .diagnosis import Stuck, WaitForGraph, messages, peers, wrong_contributions, wrong_form
from .endless import timed
from .hosts import Hosts, without_domains
from .moves import AFTER, RECEIVES, Block, Blocks, Combine, Copy, Move, Recv, Reduce, Round, Send, check_round
from .neighbors import Neighbors
from .registry import Algorithm, counts_of
from .symbols import Expression, Value, Values

Bytes = Callable[[Block], float]
MOST_ROUNDS = 200_000  # of one rank; a longer schedule is considered endless


class ProofError(AssertionError):
    """Raised if a schedule does not do what its primitive promises; with the `waiting` ranks if no round can run."""

    def __init__(self, text: str, waiting: WaitForGraph | None = None) -> None:
        super().__init__(text)
        self.waiting = waiting


@dataclass
class Counts:
    """The operations of a proven schedule, by rank; bytes are in units of the `nbytes` given to `prove`."""

    rounds: int = 0  # along the critical path
    messages: list[int] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)
    combined: list[float] = field(default_factory=list)
    alpha: float = 0.0  # the coefficients of the cost of the critical path
    beta: float = 0.0
    gamma: float = 0.0
    hazards: list[tuple[int, int]] = field(default_factory=list)  # (rank, round) that both send and write a block
    crossing: dict[tuple[int, int], float] = field(default_factory=dict)  # bytes between two hosts in one direction


class RankState(NamedTuple):
    """The state of one rank that `watch` gets after each round, and at the start with all blocks that it holds."""

    rank: int
    step: int  # rounds along the critical path up to here; local moves do not count
    moves: Round
    written: dict[Block, Value]
    heard: list[int]  # the ranks from which it has a message, directly or through other ranks
    cost: tuple[float, ...]  # the coefficients alpha, beta and gamma of the longest paths up to here


@dataclass
class _Rank:
    """The state of one rank during the run: its values, its position in its schedule, and its counts."""

    held: dict[Block, int]
    rounds: list[Round]
    at: int = -1  # before its first round
    round: Round | None = None  # the current one; None if the rank has finished
    outgoing: dict[int, list[Blocks]] = field(default_factory=dict)  # its messages, by receiver
    incoming: dict[int, list[Blocks]] = field(default_factory=dict)  # by sender
    heard: int = 0  # bit set of the ranks that it has heard from, directly or through others; for barriers
    clock: list[float] = field(default_factory=lambda: [0.0] * 4)
    messages: int = 0
    sent: float = 0.0
    received: float = 0.0
    combined: float = 0.0

    def __post_init__(self) -> None:
        self.advance()

    def advance(self) -> None:
        """Go to the next round."""
        self.at += 1
        self.round = self.rounds[self.at] if self.at < len(self.rounds) else None
        self.outgoing, self.incoming = messages(self.round)


# by sender and receiver: the values of each message, and the ranks that the sender has heard from
_InFlight = dict[tuple[int, int], list[tuple[list[int], int]]]


class _Run:
    """The lockstep execution of all ranks."""

    def __init__(
        self,
        algorithm: Algorithm,
        size: int,
        root: int,
        segments: int,
        nbytes: Bytes,
        hosts: Hosts,
        neighbors: Sequence[Neighbors] | None,
    ) -> None:
        self.values = Values()
        self.nbytes = nbytes
        self.hazards: list[tuple[int, int]] = []
        self.combined: dict[int, tuple[int, int]] = {}  # the rank and the round that first combines each value
        self.hosts = range(size) if hosts is None else without_domains(hosts)
        self.crossing: dict[tuple[int, int], float] = {}
        self.watch: Callable[[RankState], object] | None = None
        self.ranks = []
        parts = algorithm.parts(size, segments, hosts)
        for rank in range(size):
            edges = neighbors[rank] if neighbors else None
            holds = algorithm.primitive.held_by(rank, size, root, parts, edges)
            held = {block: self.values.leaf(rank, block) for block in holds}
            if rank in algorithm.count_rows(rank, size, root, hosts, edges):
                held[counts_of(rank)] = self.values.leaf(rank, counts_of(rank))
            schedule = algorithm.schedule(rank, size, root, segments, hosts, edges)
            if not isinstance(schedule, Iterable):
                why = f"the schedule is not a generator, because it has no yield: it returns {schedule!r}"
                raise ProofError(f"rank {rank}: {why}")
            rounds = list(islice(timed(schedule), MOST_ROUNDS + 1))
            if len(rounds) > MOST_ROUNDS:
                raise ProofError(f"rank {rank} has more than {MOST_ROUNDS} rounds: does its schedule ever end?")
            for step, moves in enumerate(rounds):
                if wrong := wrong_form(moves, size):
                    raise ProofError(f"rank {rank}, round {step + 1}: {wrong}")
            self.ranks.append(_Rank(held, rounds, heard=1 << rank))

    def execute(self) -> None:
        """Run components of matching rounds until no rank has a round left."""
        for rank, state in enumerate(self.ranks):
            self.show(rank, (), state.held)
        waiting = [rank for rank, state in enumerate(self.ranks) if state.round is not None]
        while waiting:
            moved: set[int] = set()
            for rank in waiting:
                if rank not in moved and (together := self.component(rank)) is not None:
                    self.run_together(together)
                    moved |= together
            if not moved:
                stuck = Stuck([one.round for one in self.ranks], [one.at for one in self.ranks])
                raise ProofError(stuck.explain(), stuck.waiting)
            waiting = [rank for rank in waiting if self.ranks[rank].round is not None]

    def component(self, start: int) -> set[int] | None:
        """Return the ranks whose rounds run with the round of `start`; None if a partner has not reached it yet."""
        found, frontier = {start}, [start]
        while frontier:
            rank = frontier.pop()
            for peer in self.ranks[rank].outgoing.keys() | self.ranks[rank].incoming.keys():
                if not self.match(rank, peer):
                    return None
                if peer not in found:
                    found.add(peer)
                    frontier.append(peer)
        return found

    def match(self, a: int, b: int) -> bool:
        """Return whether the current rounds of two ranks list the same messages between them."""
        one, other = self.ranks[a], self.ranks[b]
        return one.outgoing.get(b) == other.incoming.get(a) and one.incoming.get(b) == other.outgoing.get(a)

    def error(self, rank: int, text: str) -> ProofError:
        """Return an error about the current round of a rank."""
        return ProofError(f"rank {rank}, round {self.ranks[rank].at + 1}: {text}")

    def run_together(self, ranks: set[int]) -> None:
        """Run one round of these ranks: the values of all sends are read before any rank writes."""
        in_flight: _InFlight = {}
        for rank in ranks:
            state = self.ranks[rank]
            try:
                check_round(state.round or ())
            except ValueError as error:
                raise self.error(rank, str(error)) from None
            for move in state.round or ():
                if isinstance(move, Send):
                    values = [self.need(rank, block, "sends") for block in move.blocks]
                    in_flight.setdefault((rank, move.to), []).append((values, state.heard))
        self.pass_time(ranks)
        for rank in ranks:
            self.note_hazard(rank)
            for move in self.ranks[rank].round or ():
                self.apply(rank, move, in_flight)
            moves = self.ranks[rank].round or ()
            self.show(rank, moves, _written(moves))
            self.ranks[rank].advance()

    def show(self, rank: int, moves: Round, blocks: Iterable[Block]) -> None:
        """Pass the state of a rank and the values of these blocks to `watch`, if it is given."""
        if self.watch is None:
            return
        state = self.ranks[rank]
        written = {block: self.values.value(state.held[block]) for block in blocks}
        heard = [other for other in range(len(self.ranks)) if state.heard >> other & 1]
        step, *cost = state.clock
        self.watch(RankState(rank, int(step), moves, written, heard, tuple(cost)))

    def apply(self, rank: int, move: Move, in_flight: _InFlight) -> None:
        state = self.ranks[rank]
        match move:
            case Send(to, blocks):
                state.messages += 1
                nbytes = sum(map(self.nbytes, blocks))
                state.sent += nbytes
                way = self.hosts[rank], self.hosts[to]
                if way[0] != way[1]:
                    self.crossing[way] = self.crossing.get(way, 0) + nbytes
            case Recv(source, blocks) | Reduce(source, blocks):
                values, heard = in_flight[source, rank].pop(0)
                state.heard |= heard
                state.received += sum(map(self.nbytes, blocks))
                if isinstance(move, Recv):
                    state.held.update(zip(blocks, values))
                    return
                state.combined += sum(map(self.nbytes, blocks))
                for block, value in zip(blocks, values):
                    self.combine(rank, value, block, move.order)
            case Copy(block, to):
                state.held[to] = self.need(rank, block, "copies")
            case Combine(block, into, order):
                state.combined += self.nbytes(into)
                self.combine(rank, self.need(rank, block, "combines"), into, order)

    def combine(self, rank: int, value: int, into: Block, order: str) -> None:
        """Combine a value with the value that the rank holds as the block `into`."""
        mine = self.need(rank, into, "combines into")
        mixed = self.values.origin[value], self.values.origin[mine]
        if mixed[0] != mixed[1]:
            raise self.error(rank, f"combines block {mixed[0]} with block {mixed[1]}, into block {into}")
        left, right = (mine, value) if order == AFTER else (value, mine)
        self.ranks[rank].held[into] = number = self.values.combine(left, right)
        self.combined.setdefault(number, (rank, self.ranks[rank].at + 1))

    def need(self, rank: int, block: Block, verb: str) -> int:
        held = self.ranks[rank].held
        if block not in held:
            has = f"it holds {listed(list(held)) or 'none'}" if len(held) <= 16 else f"it holds {len(held)} others"
            raise self.error(rank, f"{verb} block {block}, which it does not hold; {has}")
        return held[block]

    def note_hazard(self, rank: int) -> None:
        state = self.ranks[rank]
        moves = state.round or ()
        sent = {block for move in moves if isinstance(move, Send) for block in move.blocks}
        if any(isinstance(move, RECEIVES) and not sent.isdisjoint(move.blocks) for move in moves):
            self.hazards.append((rank, state.at))

    def pass_time(self, ranks: set[int]) -> None:
        """Advance the clocks: all ranks start together; each ends when its ports and those of its partners are done.

        The four clocks count rounds, alpha, beta and gamma independently.
        """
        spent = {rank: self.durations(self.ranks[rank].round or ()) for rank in ranks}
        start = [max(self.ranks[rank].clock[i] for rank in ranks) for i in range(4)]
        for rank in ranks:
            concerned = [rank, *peers(self.ranks[rank].round)]
            self.ranks[rank].clock = [start[i] + max(spent[peer][i] for peer in concerned) for i in range(3)]
            self.ranks[rank].clock.append(start[3] + spent[rank][3])

    def durations(self, moves: Round) -> tuple[float, float, float, float]:
        """Return the costs of a round on one rank: rounds, messages, bytes sent or received, bytes combined."""
        sends = receives = 0
        sent = received = combined = 0.0
        for move in moves:
            match move:
                case Send(_, blocks):
                    sends += 1
                    sent += sum(map(self.nbytes, blocks))
                case Recv(_, blocks) | Reduce(_, blocks):
                    nbytes = sum(map(self.nbytes, blocks))
                    receives += 1
                    received += nbytes
                    combined += nbytes if isinstance(move, Reduce) else 0
                case Combine(_, into, _):
                    combined += self.nbytes(into)
        most = max(sends, receives)
        return float(most > 0), float(most), max(sent, received), combined


def _written(moves: Round) -> Iterator[Block]:
    for move in moves:
        match move:
            case Recv(_, blocks) | Reduce(_, blocks):
                yield from blocks
            case Copy(_, block) | Combine(_, block):
                yield block


def prove(
    algorithm: Algorithm,
    size: int,
    root: int = 0,
    segments: int = 1,
    nbytes: Bytes = lambda block: 1,
    hosts: Hosts = None,
    watch: Callable[[RankState], object] | None = None,
    neighbors: Sequence[Neighbors] | None = None,
) -> Counts:
    """Run the algorithm symbolically on `size` ranks; raise ProofError if it breaks a promise.

    `nbytes` returns the size of a block for the counts (1 by default).  `hosts` lists the host of each rank.  `watch`
    is called for every rank at the start, in order, and then after each round of a rank.  `neighbors` are the edges of
    each rank, for a collective between neighbors.
    """
    try:
        run = _Run(algorithm, size, root, segments, nbytes, hosts, neighbors)
        run.watch = watch
        run.execute()
        _check_goal(run, algorithm, size, root, segments, hosts, neighbors)
    except ProofError as error:
        raise ProofError(f"{situation(algorithm, size, root, segments, hosts)}: {error}", error.waiting) from None
    clock = [max(state.clock[i] for state in run.ranks) for i in range(4)]
    return Counts(
        rounds=int(clock[0]),
        messages=[state.messages for state in run.ranks],
        sent=[state.sent for state in run.ranks],
        received=[state.received for state in run.ranks],
        combined=[state.combined for state in run.ranks],
        alpha=clock[1],
        beta=clock[2],
        gamma=clock[3],
        hazards=run.hazards,
        crossing=run.crossing,
    )


def outcomes(
    algorithm: Algorithm, size: int, root: int = 0, segments: int = 1, hosts: Hosts = None
) -> list[dict[Block, Expression]]:
    """Return the blocks that each rank wants, and how the algorithm combines them; it is not proved here."""
    run = _Run(algorithm, size, root, segments, lambda block: 1, hosts, None)
    run.execute()
    parts = algorithm.parts(size, segments, hosts)
    return [
        {block: run.values.tree(state.held[block]) for block in algorithm.primitive.wants(rank, size, root, parts)}
        for rank, state in enumerate(run.ranks)
    ]


def situation(algorithm: Algorithm, size: int, root: int, segments: int, hosts: Hosts) -> str:
    """Describe a run, for example ``bcast.ring on 3 ranks, root 1, 2 segments``."""
    text = f"{algorithm} on {size} rank{'s' * (size > 1)}" + f", root {root}" * algorithm.primitive.rooted
    text += f", {segments} segment{'s' * (segments > 1)}" * algorithm.pipelined
    return text + (f", hosts {listed(hosts)}" if hosts else "")


def _check_goal(
    run: _Run,
    algorithm: Algorithm,
    size: int,
    root: int,
    segments: int,
    hosts: Hosts,
    neighbors: Sequence[Neighbors] | None,
) -> None:
    parts = algorithm.parts(size, segments, hosts)
    results: dict[tuple[Block, tuple[int, ...]], int] = {}  # the first rank that has each result
    for rank, state in enumerate(run.ranks):
        if algorithm.primitive.name == "barrier" and state.heard != (1 << size) - 1:
            missing = [other for other in range(size) if not state.heard >> other & 1]
            raise ProofError(f"rank {rank} leaves the barrier without having heard from {ranks_named(missing)}")
        promised = tuple(algorithm.primitive.contributors(rank, size))
        edges = neighbors[rank] if neighbors else None
        counts = [counts_of(source) for source in algorithm.count_rows(rank, size, root, hosts, edges)]
        wants = algorithm.primitive.wanted_by(rank, size, root, parts, edges)
        for block in [*wants, *counts]:
            if block not in state.held:
                raise ProofError(f"rank {rank} ends without block {block}")
            first = results.setdefault((block, promised), rank)
            if first != rank and run.ranks[first].held[block] == state.held[block]:
                continue  # this value has been checked
            origin = run.values.origin[state.held[block]]
            if origin != block:
                raise ProofError(f"rank {rank} ends with block {origin} as block {block}")
            if algorithm.primitive.reduces:
                _check_contributions(run, algorithm, rank, block, promised)
            if first != rank:
                one, other = (run.values.expression(run.ranks[each].held[block]) for each in (first, rank))
                raise ProofError(
                    f"block {block}: rank {rank} does not end with the same bits as rank {first}: "
                    f"rank {first} combines {one}, rank {rank} combines {other}; all ranks must combine in the same "
                    "order, because floating-point addition is not associative"
                )


def _check_contributions(run: _Run, algorithm: Algorithm, rank: int, block: Block, promised: tuple[int, ...]) -> None:
    number = run.ranks[rank].held[block]
    contributors = run.values.contributors[number]
    if wrong := wrong_contributions(contributors, promised):
        again = ""
        if len({*contributors}) < len(contributors):
            here, at = run.combined[run.values.repeated(number)]
            again = f", first in round {at} of rank {here}"
        raise ProofError(f"rank {rank}, block {block}: the result {wrong}{again}")
    if algorithm.ordered and contributors != promised:
        raise ProofError(
            f"rank {rank}, block {block}: the result combines the contributions in the order {listed(contributors)}, "
            "not in rank order; if it is for commutative operations only, register it with ordered=False"
        )

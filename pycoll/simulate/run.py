"""The simulation of all ranks by discrete events.  Times are in seconds.

A rank starts all moves of a round at once, as a program does, and its next round when they are complete.  A message
passes all ports of its route at the same time, each as soon as it is free, in the order in which messages leave.  It
arrives `alpha` after it has passed the slowest port.  The processor of a rank does one thing at a time: the overhead of
each segment of a message, and combining, which can overlap with the arrival of later segments.  A message that waits
for its receiver costs no more than the wait.

Schedules are generators, so completed rounds take no memory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate, count
from typing import TYPE_CHECKING, NamedTuple

from ..compiler.layout import COUNT_BYTES, split
from ..schedule.hosts import Hosts, without_domains
from ..schedule.moves import Block, Blocks, Combine, Copy, Recv, Reduce, Round, Send
from ..schedule.neighbors import Neighbors
from ..schedule.registry import Algorithm, counts_of
from .network import Link, Network
from .ports import Flow, Port, SimulatedMessage
from .topologies import FatTree, Hop, RankHosts, Topology, across, inside

if TYPE_CHECKING:
    import numpy as np

COUNTS = counts_of(0)[0]
MOST_RANKS = 1 << 24  # each takes about 1 KB of memory
KEPT = 1 << 17  # routes that are remembered; an all-to-all among thousands of ranks has millions


def sizes(algorithm: Algorithm, ranks: int, nbytes: int, segments: int, hosts: Hosts) -> Callable[[Blocks], int]:
    """Return a function for the total bytes of some blocks, if `nbytes` bytes are cut as evenly as possible."""
    parts = split(nbytes, algorithm.parts(ranks, segments, hosts))
    before = list(accumulate(parts, initial=0))

    def one(block: Block) -> int:
        if isinstance(block, tuple):
            return COUNT_BYTES * ranks if block[0] == COUNTS else parts[block[-1]]
        return parts[block]  # type: ignore[call-overload, no-any-return]

    def together(blocks: Blocks) -> int:
        if type(blocks) is range and blocks.step == 1:  # some schedules have long ranges
            return before[blocks.stop] - before[blocks.start] if blocks else 0
        return sum(map(one, blocks))

    return together


def sizes_between_neighbors(neighbors: Sequence[Neighbors], nbytes: int) -> Callable[[Blocks], int]:
    """Return a function for the total bytes of some blocks of `nbytes` bytes, and of counts, one for each edge."""
    counts = {counts_of(rank): COUNT_BYTES * len(each.edges) for rank, each in enumerate(neighbors)}
    return lambda blocks: sum(counts.get(block, nbytes) for block in blocks)  # type: ignore[call-overload]


def check_size(name: str, ranks: int) -> None:
    """Raise ValueError for more ranks than memory holds."""
    if ranks > MOST_RANKS:
        raise ValueError(f"{name}={ranks}: at most {MOST_RANKS} ranks can be simulated")


class Cluster:
    """The ports that messages pass: those of a topology between hosts, and those of ranks inside a host."""

    def __init__(self, network: Network, ranks: int, hosts: Hosts, topology: Topology | None = None) -> None:
        self.network = network
        self.domains: Sequence[int | tuple[int, ...]] = hosts or range(ranks)
        self.rank_hosts = RankHosts(network, without_domains(self.domains))
        self.topology = topology or FatTree(0, network.hosts_per_switch, network.oversubscription)
        self.ports: dict[str, Port] = {}
        self.way = lru_cache(KEPT)(self._way)

    def _way(self, source: int, to: int) -> tuple[Link, float, tuple[Port, ...]]:
        """Return the kind of link between two ranks, the latency, and the ports on the route."""
        here, there = self.domains[source], self.domains[to]
        if here == there:
            ports = tuple(map(self._port, inside(source, to, self.network)))
            return self.network.inside, self.network.inside.alpha, ports
        if isinstance(here, tuple) and isinstance(there, tuple) and here[0] == there[0]:
            ports = tuple(map(self._port, across(source, to, here, there, self.network)))
            return self.network.across, self.network.across.alpha, ports
        hops = tuple(self.topology.route(source, to, self.rank_hosts))
        return self.network.between, self.topology.latency(hops, self.network), tuple(map(self._port, hops))

    def _port(self, hop: Hop) -> Port:
        """Return the port of a hop; it is created at its first use."""
        if hop.name not in self.ports:
            self.ports[hop.name] = Port(hop.name, hop.beta)
        return self.ports[hop.name]


class Outcome(NamedTuple):
    """The state of all ranks at the end, in lists or arrays with one element for each rank."""

    ends: Sequence[float] | np.ndarray  # NaN for a rank that waits forever
    busy: Sequence[float] | np.ndarray
    messages: Sequence[int] | np.ndarray
    sent: Sequence[int] | np.ndarray
    received: Sequence[int] | np.ndarray
    combined: Sequence[int] | np.ndarray
    traffic: dict[str, tuple[int, float]]  # the bytes that passed each port, and the time in which it was busy


class Ranks:
    """The state of all ranks, in lists with one element for each rank."""

    def __init__(
        self, rounds: Sequence[Iterator[Round]], cluster: Cluster, together: Callable[[Blocks], int], longest: int
    ) -> None:
        size = len(rounds)
        self.rounds, self.cluster, self.together, self.longest = rounds, cluster, together, longest
        self.size = size
        self.gamma = cluster.network.gamma
        self.open = [0] * size  # moves of the round that are not complete
        self.finish = [0.0] * size  # the time at which the last complete move was complete
        self.processor = [0.0] * size  # the time until which the processor is busy
        self.ends = [math.nan] * size
        self.busy = [0.0] * size
        self.messages, self.sent, self.received, self.combined = ([0] * size for _ in range(4))
        self.sends: dict[int, list[SimulatedMessage]] = {}  # sends without a matching receive yet, by pair of ranks
        self.receives: dict[int, list[tuple[float, int]]] = {}  # receives without a matching send yet
        self.flows: dict[int, Flow] = {}  # bytes that have not left yet, by pair of ranks
        self.events: list[tuple[float, int, int | Port | SimulatedMessage]] = []
        self.numbers = count(size)  # numbers events, so that simultaneous events keep the order of their creation

    def run(self, starts: Sequence[float]) -> Outcome:
        """Run all ranks from their starts until no event is left."""
        self.events = [(start, rank, rank) for rank, start in enumerate(starts)]
        heapify(self.events)
        collecting = gc.isenabled()
        gc.disable()  # there are no reference cycles, and a search among millions of messages doubles the time
        try:
            while self.events:
                self.handle(*heappop(self.events))
        finally:
            if collecting:
                gc.enable()
        traffic = {port.name: (port.nbytes, port.busy) for port in self.cluster.ports.values()}
        return Outcome(self.ends, self.busy, self.messages, self.sent, self.received, self.combined, traffic)

    def handle(self, now: float, _: int, target: int | Port | SimulatedMessage) -> None:
        """Handle one event."""
        if type(target) is int:
            self.next_round(target, now)
        elif type(target) is SimulatedMessage:
            self.arrive(target, now)
        else:
            self.next_turn(target, now)  # type: ignore[arg-type]

    def at(self, time: float, target: int | Port | SimulatedMessage) -> None:
        """Schedule an event: a rank begins its next round, a port lets the next message pass, or a message arrives."""
        heappush(self.events, (time, next(self.numbers), target))

    def next_round(self, rank: int, now: float) -> None:
        """Start all moves of a round."""
        moves: Round | None = next(self.rounds[rank], None)
        if moves is None:
            self.ends[rank] = now
            return
        self.finish[rank] = now
        self.open[rank] = len(moves) + 1
        for move in moves:
            if type(move) is Send:
                self.send(rank, move.to, self.together(move.blocks), now, not move.blocks)
        for move in moves:
            if type(move) is Recv or type(move) is Reduce:
                nbytes = self.together(move.blocks)
                self.receive(rank, move.source, nbytes, type(move) is Reduce, now, not move.blocks)
            elif type(move) is Combine:
                self.complete(rank, self.work(rank, now, self.combine(rank, self.together([move.into]))))
            elif type(move) is Copy:  # takes no time
                self.complete(rank, now)
        self.complete(rank, now)

    def complete(self, rank: int, time: float) -> None:
        """Record that a move in the current round of a rank is complete."""
        if time > self.finish[rank]:
            self.finish[rank] = time
        self.open[rank] -= 1
        if not self.open[rank]:
            self.at(self.finish[rank], rank)

    def work(self, rank: int, now: float, seconds: float, earlier: float = 0.0) -> float:
        """Let the processor of a rank work, with a part `earlier` done before; return the time at which it is done."""
        taken = self.processor[rank]
        self.processor[rank] = done = (taken if taken > now else now) + seconds - earlier
        self.busy[rank] += seconds
        return done

    def combine(self, rank: int, nbytes: int) -> float:
        """Count combined bytes; return the seconds that combining takes."""
        self.combined[rank] += nbytes
        return nbytes * self.gamma

    def send(self, rank: int, to: int, nbytes: int, now: float, empty: bool) -> None:
        """Start a send; a message without bytes is omitted, unless it belongs to a barrier (`empty`)."""
        if not nbytes and not empty:
            self.complete(rank, now)
            return
        segments = -(-nbytes // self.longest) or 1
        message = SimulatedMessage(rank, to, rank * self.size + to, nbytes, segments, *self.cluster.way(rank, to))
        link = message.link
        message.handed = self.work(rank, now, segments * link.overhead)
        message.rendezvous = min(nbytes, self.longest) > link.buffer
        self.messages[rank] += 1
        self.sent[rank] += nbytes
        if waiting := self.receives.get(message.pair):
            message.receive = waiting.pop(0)
            if not waiting:
                del self.receives[message.pair]
        else:
            self.sends.setdefault(message.pair, []).append(message)
        if not message.rendezvous:
            if not nbytes or self.flows.setdefault(message.pair, Flow()).add(message):
                self.complete(rank, message.handed)
            self.leave(message, now)
        elif message.receive:
            self.leave(message, now)

    def receive(self, rank: int, source: int, nbytes: int, reduced: bool, now: float, empty: bool) -> None:
        """Start a receive."""
        if not nbytes and not empty:
            self.complete(rank, now)
            return
        self.received[rank] += nbytes
        pair, wanted = source * self.size + rank, (now, nbytes if reduced else 0)
        waiting = self.sends.get(pair)
        if not waiting:
            self.receives.setdefault(pair, []).append(wanted)
            return
        message = waiting.pop(0)
        if not waiting:
            del self.sends[pair]
        message.receive = wanted
        if message.rendezvous:
            self.leave(message, now)
        elif message.arrived:
            self.end_receive(message, wanted, now)

    def leave(self, message: SimulatedMessage, now: float) -> None:
        """Let a message leave its host, in its turn."""
        port = message.route[0]
        if not port.lines and port.free <= now and message.frame >= message.nbytes:
            self.depart(message, message.nbytes, now)
            return
        port.queue(message)
        if not port.awaited:
            port.awaited = True
            self.at(max(now, port.free), port)

    def next_turn(self, port: Port, now: float) -> None:
        """Let the message whose turn it is pass a port."""
        message, nbytes = port.next_turn()
        self.depart(message, nbytes, now)
        port.awaited = bool(port.turns)
        if port.awaited:
            self.at(port.free, port)

    def depart(self, message: SimulatedMessage, nbytes: int, now: float) -> None:
        """Let `nbytes` bytes of a message pass its ports."""
        link, out = message.link, message.route[0]
        if message.left == message.nbytes:
            message.first = now + message.alpha + min(nbytes, self.longest) * link.beta
            message.busy = self.busy[message.to]
        message.left -= nbytes
        through = 0.0
        for port in message.route:
            port.take(nbytes, now)
            if port.free > through:
                through = port.free
        if nbytes and not message.rendezvous:
            self.release(message, nbytes, now, out.beta)
        if not message.left:
            if link.shaped:
                through = max(now, through - message.tail * link.beta)
            arrival = max(through + link.overhead, message.handed) + message.alpha
            if message.rendezvous:
                self.complete(message.source, arrival)
            self.at(arrival, message)

    def release(self, message: SimulatedMessage, nbytes: int, now: float, beta: float) -> None:
        """Complete the sends that only wait for these bytes to leave."""
        flow = self.flows[message.pair]
        for other, bytes_later in flow.leave(nbytes):
            time = now + bytes_later * beta
            self.complete(other.source, time if time > other.handed else other.handed)
        if flow.sent == flow.left:
            del self.flows[message.pair]

    def arrive(self, message: SimulatedMessage, now: float) -> None:
        """Handle the arrival of the last byte."""
        message.arrived = True
        if message.receive:
            self.end_receive(message, message.receive, now)

    def end_receive(self, message: SimulatedMessage, wanted: tuple[float, int], now: float) -> None:
        """Complete a receive: the receiver processes the segments that it has not processed yet."""
        since, reduced = wanted
        rank, overhead = message.to, message.link.overhead
        last = overhead + min(reduced, self.longest) * self.gamma
        work = message.segments * overhead + self.combine(rank, reduced)
        idle = now - max(message.first, since) - (self.busy[rank] - message.busy)
        earlier = max(0.0, min(work - last, idle))
        self.complete(rank, self.work(rank, now, work, earlier))

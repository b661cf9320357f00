"""The ports of hosts and switches, at which messages wait for each other, and the messages themselves."""

from __future__ import annotations

from collections import deque

from .network import Link

MOST_TURNS = 16  # of one message, so that a few long messages do not take as long to simulate as many short ones


class Port:
    """One direction of a link.

    At a port out of the host of a sender, messages of different pairs of ranks take turns of equal size.
    """

    __slots__ = ("awaited", "beta", "busy", "frame", "free", "lines", "name", "nbytes", "turns")

    def __init__(self, name: str, beta: float) -> None:
        self.name, self.beta = name, beta
        self.free = 0.0  # the time at which all bytes that have entered will have passed
        self.nbytes = 0
        self.busy = 0.0
        self.lines: dict[int, deque[SimulatedMessage]] = {}  # the waiting messages by pair of ranks
        self.turns: deque[deque[SimulatedMessage]] = deque()  # the same queues in the order of their turns
        self.frame = 0  # bytes of a turn: the largest `SimulatedMessage.frame` since the queues were empty
        self.awaited = False  # whether an event for the next turn exists

    def take(self, nbytes: int, now: float) -> None:
        """Let `nbytes` bytes pass, after those that came before."""
        duration = nbytes * self.beta
        self.free = (self.free if self.free > now else now) + duration
        self.busy += duration
        self.nbytes += nbytes

    def queue(self, message: SimulatedMessage) -> None:
        """Queue a message for its turn."""
        line = self.lines.get(message.pair)
        if line is None:
            line = self.lines[message.pair] = deque()
            self.turns.append(line)
        line.append(message)
        self.frame = max(self.frame, message.frame)

    def next_turn(self) -> tuple[SimulatedMessage, int]:
        """Return the message whose turn it is, and the number of bytes that pass."""
        line = self.turns.popleft()
        message = line[0]
        nbytes = min(self.frame, message.left)
        if nbytes == message.left:
            line.popleft()
        if line:
            self.turns.append(line)
        else:
            del self.lines[message.pair]
        if not self.turns:
            self.frame = 0
        return message, nbytes


class SimulatedMessage:
    """A message, from its send to the end of its receive."""

    __slots__ = (
        *("source", "to", "pair", "nbytes", "segments", "link", "alpha", "route"),
        *("left", "frame", "handed", "rendezvous", "receive", "first", "busy", "arrived"),
    )

    def __init__(
        self,
        source: int,
        to: int,
        pair: int,
        nbytes: int,
        segments: int,
        link: Link,
        alpha: float,
        route: tuple[Port, ...],
    ) -> None:
        self.source, self.to, self.pair = source, to, pair
        self.nbytes, self.segments, self.link = nbytes, segments, link
        self.alpha, self.route = alpha, route  # the latency of its route, and the ports on it
        self.left = nbytes  # bytes that have not left yet
        self.frame = max(link.frame, -(-nbytes // MOST_TURNS)) if link.frame else nbytes
        self.handed = 0.0  # the time at which the processor of the sender has finished with it
        self.rendezvous = False  # whether it leaves only after the receive has started
        self.receive: tuple[float, int] | None = None  # the start of its receive, and the bytes to combine
        self.first = 0.0  # the arrival of its first segment
        self.busy = 0.0  # the seconds that its receiver had worked when it left
        self.arrived = False

    @property
    def tail(self) -> int:
        """The bytes in its last frame."""
        return self.nbytes % self.link.frame or min(self.nbytes, self.link.frame)


class Flow:
    """The bytes that one rank sends to another; a send completes when at most `Link.buffer` bytes have not left."""

    __slots__ = ("left", "owed", "sent")

    def __init__(self) -> None:
        self.sent = self.left = 0
        self.owed: list[tuple[int, SimulatedMessage]] = []  # pending, with the bytes that must leave first

    def add(self, message: SimulatedMessage) -> bool:
        """Add a message; return whether its send is complete at once."""
        self.sent += message.nbytes
        awaited = self.sent - message.link.buffer
        if awaited > self.left:
            self.owed.append((awaited, message))
        return awaited <= self.left

    def leave(self, nbytes: int) -> list[tuple[SimulatedMessage, int]]:
        """Let bytes leave; return the messages whose sends complete meanwhile, and after how many of these bytes."""
        before = self.left
        self.left += nbytes
        done = [(message, awaited - before) for awaited, message in self.owed if awaited <= self.left]
        if done:
            self.owed = [(awaited, message) for awaited, message in self.owed if awaited > self.left]
        return done

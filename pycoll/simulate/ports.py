"""Where messages wait for each other: the ports of hosts and of switches, and the messages themselves."""

from __future__ import annotations

from collections import deque

from .network import Link

MOST_TURNS = 16  # of one message: else a few long ones would take as long to simulate as many short ones


class Port:
    """One direction of a link.

    Where it is the one out of a sender's host, messages to different ranks take turns, as many bytes each.
    """

    __slots__ = ("awaited", "beta", "busy", "frame", "free", "lines", "name", "nbytes", "turns")

    def __init__(self, name: str, beta: float) -> None:
        self.name, self.beta = name, beta
        self.free = 0.0  # when all that has entered will be through
        self.nbytes = 0
        self.busy = 0.0
        self.lines: dict[int, deque[Message]] = {}  # those that wait, by pairs of ranks
        self.turns: deque[deque[Message]] = deque()  # the same, by who is next
        self.frame = 0  # bytes of a turn: the largest `Message.frame` since nothing waited
        self.awaited = False  # whether there is an event at which the next one's turn comes

    def take(self, nbytes: int, now: float) -> None:
        """Let so many bytes through, after those that came before."""
        duration = nbytes * self.beta
        self.free = (self.free if self.free > now else now) + duration
        self.busy += duration
        self.nbytes += nbytes

    def queue(self, message: Message) -> None:
        """Let a message wait for its turn."""
        line = self.lines.get(message.pair)
        if line is None:
            line = self.lines[message.pair] = deque()
            self.turns.append(line)
        line.append(message)
        self.frame = max(self.frame, message.frame)

    def next_turn(self) -> tuple[Message, int]:
        """Whose turn it is, and with how many bytes."""
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


class Message:
    """A message, from its send to the end of its receive."""

    __slots__ = (
        *("source", "to", "pair", "nbytes", "segments", "link", "route"),
        *("left", "frame", "handed", "rendezvous", "receive", "first", "busy", "arrived"),
    )

    def __init__(
        self, source: int, to: int, pair: int, nbytes: int, segments: int, link: Link, route: tuple[Port, ...]
    ) -> None:
        self.source, self.to, self.pair = source, to, pair
        self.nbytes, self.segments, self.link, self.route = nbytes, segments, link, route
        self.left = nbytes  # bytes that have not left yet
        self.frame = max(link.frame, -(-nbytes // MOST_TURNS)) if link.frame else nbytes
        self.handed = 0.0  # when its sender's processor has done its part
        self.rendezvous = False  # whether it leaves only when it is received
        self.receive: tuple[float, int] | None = None  # since when it is waited for, and how many bytes are combined
        self.first = self.busy = 0.0  # when its first segment comes, and how much its receiver had worked when it left
        self.arrived = False

    @property
    def tail(self) -> int:
        """Bytes in its last frame."""
        return self.nbytes % self.link.frame or min(self.nbytes, self.link.frame)


class Flow:
    """What one rank has sent to another and has not left yet; a send may leave `Link.buffer` bytes behind."""

    __slots__ = ("left", "owed", "sent")

    def __init__(self) -> None:
        self.sent = self.left = 0
        self.owed: list[tuple[int, Message]] = []  # sends that are complete when so many bytes have left

    def add(self, message: Message) -> bool:
        """Whether the send of another message is complete at once."""
        self.sent += message.nbytes
        awaited = self.sent - message.link.buffer
        if awaited > self.left:
            self.owed.append((awaited, message))
        return awaited <= self.left

    def leave(self, nbytes: int) -> list[tuple[Message, int]]:
        """The messages whose sends are complete while these bytes leave, and after how many of them."""
        before = self.left
        self.left += nbytes
        done = [(message, awaited - before) for awaited, message in self.owed if awaited <= self.left]
        if done:
            self.owed = [(awaited, message) for awaited, message in self.owed if awaited > self.left]
        return done

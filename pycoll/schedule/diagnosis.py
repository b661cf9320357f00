"""Explanations of errors in a schedule: which ranks wait for each other, and which contributions are wrong.

The rounds of each rank are counted from 1, in the order of its yields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import NamedTuple

from ..base.numbers import MOST, listed, ranks_named
from .moves import AFTER, BEFORE, Blocks, Combine, Copy, Move, Recv, Reduce, Round, Send

MESSAGES = Send, Recv, Reduce


def messages(moves: Round | None) -> tuple[dict[int, list[Blocks]], dict[int, list[Blocks]]]:
    """Return the blocks of each message that a round sends, by receiver, and that it receives, by sender."""
    sends: dict[int, list[Blocks]] = {}
    receives: dict[int, list[Blocks]] = {}
    for move in moves or ():
        match move:
            case Send(rank, blocks):
                sends.setdefault(rank, []).append(list(blocks))
            case Recv(rank, blocks) | Reduce(rank, blocks):
                receives.setdefault(rank, []).append(list(blocks))
    return sends, receives


def outgoing(moves: Round | None, to: int) -> list[Blocks]:
    """Return the blocks of each message that a round sends to a rank."""
    return messages(moves)[0].get(to, [])


def incoming(moves: Round | None, source: int) -> list[Blocks]:
    """Return the blocks of each message that a round receives from a rank."""
    return messages(moves)[1].get(source, [])


def peers(moves: Round | None) -> list[int]:
    """Return the ranks that a round sends to or receives from."""
    return list(dict.fromkeys(move[0] for move in moves or () if isinstance(move, MESSAGES)))


def wrong_form(moves: object, size: int) -> str | None:
    """Describe the error if a round is not a tuple of moves with valid ranks and blocks; None if it is valid."""
    if isinstance(moves, Move):
        kind = type(moves).__name__
        return f"yields a {kind} instead of a tuple of moves: write `yield ({kind}(...),)`, with a comma"
    if not isinstance(moves, tuple) or not all(isinstance(move, Move) for move in moves):
        return f"yields {moves!r}, which is not a tuple of moves"
    return next(filter(None, (_wrong_move(move, size) for move in moves)), None)


def _wrong_move(move: Move, size: int) -> str | None:
    if isinstance(move, (Reduce, Combine)) and move.order not in (BEFORE, AFTER):
        return f"{move} has order={move.order!r}, which is neither BEFORE nor AFTER"
    if isinstance(move, MESSAGES):
        if not isinstance(move[0], (int, Integral)) or not 0 <= move[0] < size:
            return f"{move} names rank {move[0]!r}, but the ranks are 0 to {size - 1}"
        if isinstance(move.blocks, str) or not isinstance(move.blocks, (list, tuple, range, Sequence)):
            return f"{move} has blocks={move.blocks!r}, which is not a sequence of blocks"
    blocks = [move[0], move[1]] if isinstance(move, (Copy, Combine)) else move.blocks
    unhashable = [block for block in blocks if not isinstance(block, (int, Hashable))]
    return f"{move} has block {unhashable[0]!r}, which is not hashable" if unhashable else None


class WaitForGraph(NamedTuple):
    """Which ranks wait for which when no round can run.

    `waits` has the ranks that each rank waits for; None if it has finished.  `cycle` has the ranks of a deadlock, each
    of which waits for the next one, and the last one for the first; it is empty if there is another cause.
    """

    waits: list[list[int] | None]
    cycle: list[int]


class Stuck:
    """A state in which no round can run.  `rounds` are the current rounds by rank; None if the rank has finished."""

    def __init__(self, rounds: Sequence[Round | None], steps: Sequence[int]) -> None:
        self.rounds, self.steps = rounds, steps

    @property
    def waiting(self) -> WaitForGraph:
        """Who waits for whom."""
        waits = [
            None if moves is None else self.awaited(rank) or self.held_up_by(rank)[:1]
            for rank, moves in enumerate(self.rounds)
        ]
        return WaitForGraph(waits, self.cycle(self.chain(self.ranks()[0])))

    def ranks(self) -> list[int]:
        """Return the ranks that wait for a partner whose current round does not match."""
        return [rank for rank, moves in enumerate(self.rounds) if moves and self.awaited(rank)]

    def explain(self) -> str:
        """Return the cause in one line, followed by lines about the messages that each rank waits for."""
        ranks = self.ranks()
        lines = [f"  {line}" for rank in ranks[:MOST] for line in self.waits(rank)]
        if len(ranks) > MOST:
            lines.append(f"  ... and {len(ranks) - MOST} more ranks wait")
        return "\n".join([self.cause(self.chain(ranks[0])), *lines])

    def awaited(self, rank: int) -> list[int]:
        """Return the partners of this rank whose current rounds do not have the matching messages."""
        moves = self.rounds[rank]
        return [
            peer
            for peer in peers(moves)
            if outgoing(moves, peer) != incoming(self.rounds[peer], rank)
            or incoming(moves, peer) != outgoing(self.rounds[peer], rank)
        ]

    def chain(self, rank: int) -> list[int]:
        """Follow the waiting ranks from a rank.

        The chain ends with a rank that has finished, that disagrees with the one before it, or that is in it twice.
        """
        chain = [rank]
        while True:
            for peer in self.held_up_by(chain[-1]):
                ends = self.rounds[peer] is None or self.disagree(chain[-1], peer) or peer in chain
                chain.append(peer)
                if ends:
                    return chain

    def cycle(self, chain: list[int]) -> list[int]:
        """Return the ranks in the cycle at the end of a chain; empty if it ends otherwise."""
        *before, last = chain
        around = last in before and not self.disagree(before[-1], last)
        return chain[chain.index(last) : -1] if around else []

    def cause(self, chain: list[int]) -> str:
        """Describe the end of a chain of waiting ranks."""
        here, peer = chain[-2:]
        if self.rounds[peer] is None:
            lost = "receives" if outgoing(self.rounds[here], peer) else "sends"
            return f"a message that no one {lost}: rank {here} waits for rank {peer}, which has finished"
        cycle = self.cycle(chain)
        if not cycle:
            return f"ranks {here} and {peer} disagree about the messages between them"
        steps = pairwise([*cycle, cycle[0]])
        return f"deadlock: {listed([f'rank {a} waits for rank {b}' for a, b in steps])}"

    def held_up_by(self, rank: int) -> list[int]:
        """Return the path to the rank that this one waits for, through partners whose rounds match.

        Matching rounds run in the same step, so a rank that one of them waits for delays all of them.
        """
        before: dict[int, int] = {}
        frontier = [rank]
        for here in frontier:
            if missing := self.awaited(here):
                way = [missing[0], here]
                while way[-1] != rank:
                    way.append(before[way[-1]])
                return way[-2::-1]
            for peer in peers(self.rounds[here]):
                if peer not in before:
                    before[peer] = here
                    frontier.append(peer)
        raise AssertionError("a rank that waits for no one")

    def disagree(self, rank: int, peer: int) -> bool:
        """Return whether both ranks list messages in the same direction, but different ones."""
        mine, other = self.rounds[rank], self.rounds[peer]
        ways = (outgoing(mine, peer), incoming(other, rank)), (outgoing(other, rank), incoming(mine, peer))
        return any(sends and receives and sends != receives for sends, receives in ways)

    def waits(self, rank: int) -> list[str]:
        """Describe the messages that a rank waits for, with a line for each partner and direction."""
        moves, lines = self.rounds[rank], []
        for peer in self.awaited(rank):
            other = self.rounds[peer]
            for verb, mine, theirs in (
                ("send", outgoing(moves, peer), incoming(other, rank)),
                ("receive", incoming(moves, peer), outgoing(other, rank)),
            ):
                if mine and mine != theirs:
                    to = "to" if verb == "send" else "from"
                    lines.append(f"rank {rank}, round {self.steps[rank] + 1}: waits to {verb} {_messages(mine)} {to} ")
                    lines[-1] += f"rank {peer}, {self.state(peer, rank, verb, theirs)}"
        return lines

    def state(self, rank: int, partner: int, verb: str, theirs: list[Blocks]) -> str:
        """Describe the activity of a rank that its partner waits for."""
        if self.rounds[rank] is None:
            rounds = f"{self.steps[rank]} round{'s' * (self.steps[rank] > 1)}"
            return f"which has finished after {rounds}" if self.steps[rank] else "which has no rounds"
        step = self.steps[rank] + 1
        if theirs:
            way = "receives {} from" if verb == "send" else "sends {} to"
            return f"which in its round {step} {way.format(_messages(theirs))} rank {partner}"
        return f"which is in its round {step}: it {_activity(self.rounds[rank] or ())}"


def _messages(messages: list[Blocks]) -> str:
    named = [f"blocks {list(blocks)}" if len(blocks) != 1 else f"block {blocks[0]}" for blocks in messages]
    return named[0] if len(named) == 1 else f"{len(named)} messages ({listed(named)})"


def _activity(moves: Round) -> str:
    found = [f"sends {_messages(sends)} to rank {peer}" for peer in peers(moves) if (sends := outgoing(moves, peer))]
    found += [
        f"receives {_messages(receives)} from rank {peer}"
        for peer in peers(moves)
        if (receives := incoming(moves, peer))
    ]
    return listed(found)


def wrong_contributions(contributors: Sequence[int], promised: Sequence[int]) -> str | None:
    """Describe contributions that are missing, combined more than once or not promised; None if all are right."""
    count, right = Counter(contributors), set(promised)
    problems = [
        (what, ranks)
        for what, ranks in (
            ("lacks {}", [rank for rank in promised if not count[rank]]),
            ("combines {} more than once", [rank for rank in sorted(count) if rank in right and count[rank] > 1]),
            ("should not include {}", [rank for rank in sorted(count) if rank not in right]),
        )
        if ranks
    ]
    if not problems:
        return None
    return listed([what.format(f"the contribution{'s' * (len(r) > 1)} of {ranks_named(r)}") for what, r in problems])

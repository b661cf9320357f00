"""The moves that schedules are made of.

An algorithm is a generator of rounds, a pure function of ``(rank, size, ...)``.  A round is the tuple of
moves that one rank starts together and finishes before its next round.  A *block* is a name, not an
address: ``3`` is "the block of rank 3" or "part 3 of the vector", ``(2, 5)`` is "what rank 2 sends to
rank 5" or, of a vector, "rank 2's copy of part 5".  `pycoll.compiler` decides where a block lies in memory.

These rules hold in every schedule, and `pycoll.schedule.proof` enforces them:

* sends read the value that a block had before the round;
* receives and reductions apply in listed order, and messages between two ranks match first-in, first-out;
* a round runs only when every partner has come to the round that matches it (no buffering is assumed);
* local moves (Copy, Combine) stand in rounds of their own, and moves of one round that write the same block
  write the same list of blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

Block = Hashable
Blocks = Sequence[Block]

BEFORE = "before"  # the received value is the left operand: held = received (op) held
AFTER = "after"  # the received value is the right operand: held = held (op) received


class Send(NamedTuple):
    """Send these blocks, as one message."""

    to: int
    blocks: Blocks


class Recv(NamedTuple):
    """Receive these blocks, replacing what is held."""

    source: int
    blocks: Blocks


class Reduce(NamedTuple):
    """Receive these blocks and combine them with what is held; `order` says which operand is which."""

    source: int
    blocks: Blocks
    order: str = AFTER


class Copy(NamedTuple):
    """Give the value of `block` a second name.  Local moves stand in rounds of their own."""

    block: Block
    to: Block


class Combine(NamedTuple):
    """Combine `block` into `into`, both held; with AFTER, `block` is the right operand."""

    block: Block
    into: Block
    order: str = AFTER


Move = Send | Recv | Reduce | Copy | Combine
Round = tuple[Move, ...]
Schedule = Iterator[Round]


def check_round(moves: Round) -> None:
    """ValueError unless the moves may stand in one round."""
    local = [move for move in moves if isinstance(move, Copy | Combine)]
    if local and len(local) < len(moves):
        raise ValueError(f"local moves stand beside messages: {moves}")
    written: dict[Block, Blocks] = {}
    for move in moves:
        if isinstance(move, Recv | Reduce):
            for block in move.blocks:
                if list(written.setdefault(block, move.blocks)) != list(move.blocks):
                    raise ValueError(f"block {block} is written by moves with different blocks: {moves}")

"""The moves that schedules are made of.

An algorithm is a generator of rounds, a pure function of ``(rank, size, ...)``.  A round is the tuple of moves that one
rank starts together and finishes before its next round.  A *block* is a name, not an address: ``3`` is "the block of
rank 3" or "part 3 of the vector"; ``(2, 5)`` is "the block that rank 2 sends to rank 5" or "the copy of part 5 on rank
2".  `pycoll.compiler` decides where a block is in memory.

These rules hold in every schedule, and `pycoll.schedule.proof` enforces them:

* sends read the value that a block had before the round;
* receives and reductions apply in listed order, and messages between two ranks match first-in, first-out;
* a round runs only when every partner has reached the matching round (no buffering is assumed);
* a round has either messages or local moves (Copy, Combine), not both;
* moves of one round that write the same block write the same list of blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

Block = Hashable
Blocks = Sequence[Block]

BEFORE = "before"  # the received value is the left operand: held = received (op) held
AFTER = "after"  # the received value is the right operand: held = held (op) received


class Send(NamedTuple):
    """Send blocks to another rank, as one message.

    Attributes
    ----------
    to : int
        The rank that receives.
    blocks : sequence of blocks
        The blocks.  The receiver lists the same blocks in the same order.
    """

    to: int
    blocks: Blocks


class Recv(NamedTuple):
    """Receive blocks from another rank; the received values replace the values held.

    Attributes
    ----------
    source : int
        The rank that sends.
    blocks : sequence of blocks
        The blocks.  The sender lists the same blocks in the same order.
    """

    source: int
    blocks: Blocks


class Reduce(NamedTuple):
    """Receive blocks from another rank, and combine them with the values held.

    Attributes
    ----------
    source : int
        The rank that sends.
    blocks : sequence of blocks
        The blocks.  The sender lists the same blocks in the same order.
    order : str, default AFTER
        The order of the operands, for operations that do not commute: with AFTER, the received value is the right
        operand; with BEFORE, it is the left operand.
    """

    source: int
    blocks: Blocks
    order: str = AFTER


class Copy(NamedTuple):
    """Copy the value of a block to another block.  This is a local move.

    Attributes
    ----------
    block : block
        The block to copy.
    to : block
        The block that gets the value.
    """

    block: Block
    to: Block


class Combine(NamedTuple):
    """Combine two blocks that the rank holds.  This is a local move.

    Attributes
    ----------
    block : block
        One operand, which does not change.
    into : block
        The other operand, which the result replaces.
    order : str, default AFTER
        With AFTER, `block` is the right operand; with BEFORE, it is the left operand.
    """

    block: Block
    into: Block
    order: str = AFTER


Move = Send | Recv | Reduce | Copy | Combine
RECEIVES = Recv, Reduce
Round = tuple[Move, ...]
Schedule = Iterator[Round]


def check_round(moves: Round) -> None:
    """Raise ValueError unless one round may have these moves."""
    local = [move for move in moves if isinstance(move, (Copy, Combine))]
    if local and len(local) < len(moves):
        raise ValueError(f"a round has both local moves and messages: {moves}")
    written: dict[Block, Blocks] = {}
    for move in moves:
        if isinstance(move, RECEIVES):
            for block in move.blocks:
                others = written.setdefault(block, move.blocks)
                if others is not move.blocks and list(others) != list(move.blocks):
                    raise ValueError(f"block {block} is written by moves with different blocks: {moves}")

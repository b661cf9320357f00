"""The programs of calls, each compiled once."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..schedule.moves import Recv, Round, Send
from ..schedule.registry import counts_of
from .layout import layout
from .lower import compile_rounds
from .program import RECV, Divide, Program, Region
from .program_key import ProgramKey, longest_message


@lru_cache(maxsize=512)
def compiled(call: ProgramKey) -> Program:
    """Return the program of one rank; no segment ends in the middle of an element."""
    return replace(compile_rounds(rounds_of(call), layout(call), longest_message(call)), name=str(call.algorithm))


@lru_cache(maxsize=512)
def with_division(program: Program, nbytes: int) -> Program:
    """The program with a division of the receive buffer at the end."""
    return replace(program, steps=[*program.steps, Divide(Region(RECV, 0, nbytes))])


def rounds_of(call: ProgramKey) -> list[Round]:
    """Return the rounds of one rank: those that exchange counts, or those after them."""
    rounds = list(call.algorithm.schedule(call.rank, call.size, call.root, call.segments, call.hosts, call.neighbors))
    if not call.algorithm.needs_counts:
        return rounds
    first = sum(map(_carries_counts, rounds))
    return rounds[:first] if call.counts_missing else rounds[first:]


def _carries_counts(moves: Round) -> bool:
    """Return whether a round carries only counts."""
    blocks = [block for move in moves if isinstance(move, Send | Recv) for block in move.blocks]
    return bool(blocks) and all(isinstance(block, tuple) and block[0] == counts_of(0)[0] for block in blocks)

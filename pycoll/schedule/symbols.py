"""Symbolic values: the block that a value belongs to, and the contributions that it combines, in order."""

from __future__ import annotations

from typing import Any, NamedTuple

from .moves import Block

LONGEST = 80  # characters of an expression


class Value(NamedTuple):
    """The value of a block: the block it comes from, and the contributing ranks in the order of combination."""

    origin: Block
    contributors: tuple[int, ...]


class Leaf(NamedTuple):
    """The contribution of a rank to a block."""

    rank: int
    block: Block


class Combination(NamedTuple):
    """Two values of one block, combined in this order."""

    left: Leaf | Combination
    right: Leaf | Combination


Expression = Leaf | Combination


def contributors(expression: Expression) -> list[int]:
    """Return the ranks that contribute to an expression, from left to right."""
    if isinstance(expression, Leaf):
        return [expression.rank]
    return [rank for side in expression for rank in contributors(side)]


class Values:
    """Symbolic values by number: equal numbers mean the same contributions combined in the same order."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._keys: list[tuple[Any, ...]] = []
        self.origin: list[Block] = []
        self.contributors: list[tuple[int, ...]] = []

    def _number(self, key: tuple[Any, ...], origin: Block, contributors: tuple[int, ...]) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.origin)
            self._keys.append(key)
            self.origin.append(origin)
            self.contributors.append(contributors)
        return self._numbers[key]

    def leaf(self, rank: int, block: Block) -> int:
        """Return the contribution of a rank to a block."""
        return self._number(("leaf", rank, block), block, (rank,))

    def combine(self, left: int, right: int) -> int:
        """Return the combination of two values of one block."""
        return self._number((left, right), self.origin[left], self.contributors[left] + self.contributors[right])

    def repeated(self, number: int) -> int:
        """Return the first combination in a value whose operands share a contribution; there must be one."""
        for side in self._keys[number]:
            if len({*self.contributors[side]}) < len(self.contributors[side]):
                return self.repeated(side)
        return number

    def value(self, number: int) -> Value:
        """Return the value with this number."""
        return Value(self.origin[number], self.contributors[number])

    def tree(self, number: int) -> Expression:
        """Return the value with this number as a tree of combinations."""
        key = self._keys[number]
        return Leaf(key[1], key[2]) if key[0] == "leaf" else Combination(self.tree(key[0]), self.tree(key[1]))

    def expression(self, number: int) -> str:
        """Return the order of combination as an expression in ranks, for example ``(0+1)+2``."""
        text = self._expression(number)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."

    def _expression(self, number: int) -> str:
        key = self._keys[number]
        if key[0] == "leaf":
            return str(key[1])
        sides = map(self._expression, key)
        return "+".join(f"({side})" if "+" in side else side for side in sides)

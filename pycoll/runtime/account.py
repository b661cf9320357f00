"""Accounts of memory from which others are given parts."""

from __future__ import annotations


class Account:
    """The account of a piece of memory: its holes, in order."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._holes = [(0, nbytes)]
        self.taken: dict[int, int] = {}  # the bytes of each allocation, by its offset

    def hole(self, nbytes: int) -> int | None:
        """The offset of the first hole of this size, or None."""
        return next((start for start, end in self._holes if end - start >= nbytes), None)

    def take(self, nbytes: int) -> int:
        """Allocate from the first hole of this size, and return its offset."""
        at, (start, end) = next((i, hole) for i, hole in enumerate(self._holes) if hole[1] - hole[0] >= nbytes)
        self._holes[at : at + 1] = [(start + nbytes, end)] if end - start > nbytes else []
        self.taken[start] = nbytes
        return start

    def give_back(self, start: int) -> None:
        """Free what `take` has allocated at this offset, and join the holes around it."""
        holes = sorted([*self._holes, (start, start + self.taken.pop(start))])
        self._holes = []
        for hole in holes:
            if self._holes and self._holes[-1][1] == hole[0]:
                hole = self._holes.pop()[0], hole[1]
            self._holes.append(hole)

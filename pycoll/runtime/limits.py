"""The longest calls of `pycoll.Comm` on one communicator that go to MPI directly; see `pycoll.api.short`."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

from mpi4py import MPI

from ..schedule.registry import PRIMITIVES

_REDUCTIONS = [name for name, primitive in PRIMITIVES.items() if primitive.reduces]
_BY_OP = [f"{name}_by" for name in _REDUCTIONS]
_SUM = id(MPI.SUM)


class Limits:
    """The limits in bytes of a block, as attributes, which are read fastest.

    Those of primitives that move data are numbers.  ``limits.allreduce`` has the limits of sums, by dtype or by the
    identity of a datatype; ``limits.allreduce_by[id(op)]`` has those of another operation.
    """

    __slots__ = ("comm", "ranks", *PRIMITIVES, *_BY_OP)

    def __init__(self, comm: MPI.Intracomm | None = None, ranks: int = 1) -> None:
        self.comm, self.ranks = comm, ranks  # the communicator of these calls
        self.clear()

    def clear(self) -> None:
        """Let no calls go to MPI directly."""
        for name in PRIMITIVES:
            setattr(self, name, -math.inf)
        for name in (*_REDUCTIONS, *_BY_OP):
            setattr(self, name, {})

    def add(self, primitive: str, nbytes: int) -> None:
        """Let calls that move up to `nbytes` bytes go to MPI directly."""
        setattr(self, primitive, nbytes)

    def add_reduction(self, primitive: str, op: int, names: Iterable[Hashable], nbytes: int) -> None:
        """Let reductions of the named dtypes with the operation of this identity go to MPI directly."""
        longest: Any = getattr(self, primitive)
        if op != _SUM:
            longest = getattr(self, f"{primitive}_by").setdefault(op, {})
        longest |= dict.fromkeys(names, nbytes)

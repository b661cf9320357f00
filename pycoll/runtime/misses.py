"""Counts calls whose buffers turn out not to be registered, so that the ranks need not look at them in each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

ENOUGH = 8  # misses in a row, after which MPI runs the calls


class Misses:
    """Consecutive calls of one primitive with buffers that are not registered; the same number on all ranks.

    Only those calls count that MPI would run if there were no registered memory.  The number is set by functions in C:
    the exception of a signal handler cannot separate it from the call.
    """

    count = 0

    @property
    def many(self) -> bool:
        """Whether MPI runs these calls, as if there were no registered memory."""
        return self.count >= ENOUGH

    def miss(self) -> Callable[[], None]:
        """A function that counts one more."""
        return partial(setattr, self, "count", self.count + 1)

    def reset(self) -> Callable[[], None]:
        """A function that sets the number to zero."""
        return partial(setattr, self, "count", 0)

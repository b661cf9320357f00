"""Rules that select the algorithms of an MPI library, independent of the format of its files."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from mpi4py import MPI

DEFAULT = "default"  # the algorithm that the library selects itself


class Range(NamedTuple):
    """The algorithm for messages of `least` to `most` bytes: of the vector, or of the blocks of all ranks together."""

    least: int
    most: int
    algorithm: str


Rules = dict[str, dict[int, list[Range]]]  # for each primitive and number of ranks


class Library(Protocol):
    """An MPI library whose algorithms can be selected in a running program, and by files."""

    names: tuple[str, ...]  # of the files
    primitives: tuple[str, ...]  # those for which the files can select algorithms by the size
    for_any_operation: bool  # the files select an algorithm of a reduction even for operations that do not commute

    def algorithms(self, primitive: str, nbytes: int) -> list[str]:
        """Return the names of the algorithms that the files can select for this primitive and size."""

    def communicator(self, primitive: str, algorithm: str) -> MPI.Intracomm:
        """Return a communicator for calls of this algorithm; all ranks call this together."""

    def select(self, primitive: str, algorithm: str, strictly: bool = False) -> None:
        """Select the algorithm of the next calls on its communicator; `DEFAULT` selects none.

        With `strictly`, calls that the algorithm cannot run raise MPI.Exception, even if the library could run another
        one instead.
        """

    def files(self, rules: Rules, on_several_hosts: set[int]) -> dict[str, str]:
        """Return the texts of the files, by their names; some numbers of ranks were measured on several hosts."""

    def variables(self, paths: dict[str, str]) -> dict[str, str]:
        """Return the environment variables that make the library read the files, which have these paths."""

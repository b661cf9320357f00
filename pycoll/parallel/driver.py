"""The base class of the three drivers: it frees their communicator, and has the default hooks for checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TypeVar

from mpi4py import MPI

import pycoll

from ..runtime.progress import until
from .flat import Array, Arrays, Piece, whole_pieces

D = TypeVar("D", bound="Driver")


@contextlib.contextmanager
def own_communicator(comm: MPI.Intracomm | None) -> Iterator[MPI.Intracomm]:
    """Duplicate a communicator for the messages of a driver; the duplicate is freed if all ranks raise inside."""
    comm = MPI.COMM_WORLD if comm is None else comm
    duplicate, request = comm.Idup()  # not Dup: collectives in flight must go on meanwhile
    until(
        request.Test,
        f"the constructor of a driver on rank {comm.rank}",
        lambda: f"at least one of the {comm.size} ranks has not called it",
    )
    pycoll.attach(duplicate)
    try:
        yield duplicate
    except BaseException:
        duplicate.Free()
        raise


def check_algorithm(algorithm: str | None, *primitives: str) -> None:
    """ValueError unless each of these primitives has the algorithm."""
    for primitive in primitives:
        names = pycoll.algorithms(primitive)
        if algorithm is not None and algorithm not in names:
            raise ValueError(f"algorithm={algorithm!r} is not an algorithm of {primitive}: {', '.join(names)}")


class Driver:
    """A driver on a communicator of its own; unless they say otherwise, all ranks call its methods together.

    The hooks for checkpoints are those of drivers whose parameters are replicated on every rank.
    """

    comm: MPI.Intracomm
    parameters: dict[str, Array]

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds, by kind (one of which is "parameters") and by the keys of the driver."""
        return {"parameters": self.parameters}

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Arrays with the keys of `saved`, as (key, name of the parameter, piece of that parameter)."""
        for name, piece in whole_pieces(arrays):
            yield name, name, piece

    @property
    def saves(self) -> bool:
        """Whether the arrays of this rank go into a checkpoint: one replica is enough."""
        return self.comm.rank == 0

    @property
    def private(self) -> Mapping[str, Array]:
        """The arrays of this rank alone that a checkpoint holds as well."""
        return {}

    def check_private(self, arrays: Mapping[str, Array]) -> None:
        """ValueError if `load_private` cannot take these arrays."""

    def load_private(self, arrays: Mapping[str, Array]) -> None:
        """Set the private arrays again; those that are not given are forgotten."""

    def loaded(self) -> None:
        """Called when a checkpoint has been loaded into the arrays."""

    def free(self) -> None:
        """Free the requests and the communicators; also called at the end of a with block."""
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.free()

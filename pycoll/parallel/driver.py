"""What the three drivers have in common: a with block frees them, and checkpoints know how to read and write them."""

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
            raise ValueError(f"algorithm={algorithm!r} is not one of {primitive}'s: {', '.join(names)}")


class Driver:
    """A driver on a communicator of its own; all its methods are called by all ranks unless they say otherwise.

    What checkpoints know of it is here as it is where every rank has all parameters.
    """

    comm: MPI.Intracomm
    parameters: dict[str, Array]

    @property
    def saved(self) -> dict[str, Arrays]:
        """What a checkpoint holds: arrays by kind and by the driver's own keys; the kind "parameters" is among them."""
        return {"parameters": self.parameters}

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Arrays with the keys of `saved` as (key, parameter's name, piece of that parameter)."""
        for name, piece in whole_pieces(arrays):
            yield name, name, piece

    @property
    def saves(self) -> bool:
        """Whether this rank's arrays go into a checkpoint: one replica is enough."""
        return self.comm.rank == 0

    @property
    def private(self) -> Mapping[str, Array]:
        """What a checkpoint holds besides, of each rank by itself."""
        return {}

    def check_private(self, arrays: Mapping[str, Array]) -> None:
        """ValueError if `load_private` cannot take these arrays."""

    def load_private(self, arrays: Mapping[str, Array]) -> None:
        """Set the private arrays again; those that are not given are forgotten."""

    def loaded(self) -> None:
        """A checkpoint has been loaded: the arrays have other values."""

    def free(self) -> None:
        """Give requests and communicators back to MPI; also at the end of a with block."""
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.free()

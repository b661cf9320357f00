"""The base class of the drivers: it frees their communicator and has the default hooks for checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from mpi4py import MPI

import pycoll

from ..base import settings
from ..runtime.failures import is_failure
from ..runtime.progress import tasks, until
from ..schedule.registry import find_schedule
from .flat import Array, Arrays, Piece, whole_pieces
from .optimizers import Optimizer

D = TypeVar("D", bound="Driver")
pending: set[object] = set()  # objects with messages in flight: MPI accesses their memory, even if they are dropped


@contextlib.contextmanager
def own_communicator(comm: MPI.Comm | None) -> Iterator[MPI.Comm]:
    """Duplicate a communicator for the messages of a driver.

    The duplicate is freed if the block raises an exception, which must then be raised on all ranks.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    duplicate, request = comm.Idup()  # not Dup: collectives in flight must make progress meanwhile
    until(
        request.Test,
        f"the constructor of a driver on rank {comm.rank}",
        lambda: f"at least one of the {comm.size} ranks has not called it",
    )
    pycoll.attach(duplicate)
    try:
        yield duplicate
    except BaseException as error:
        if is_failure(duplicate, error):
            revoke(duplicate)  # no other rank waits for this one
        else:
            duplicate.Free()
        raise


def revoke(comm: MPI.Comm) -> None:
    """Revoke a communicator and its private duplicate, so that all ranks leave their calls."""
    from ..runtime import attach  # not before MPI is initialized

    attach.revoke(comm)


def wait_for(requests: Sequence[MPI.Request], what: str, state: Callable[[], str]) -> None:
    """Wait for messages; CollectiveTimeout says that `what` did not finish, followed by `state()`."""
    if not (tasks or settings.TIMEOUT):
        for request in requests:
            request.Wait()
        return
    waiting = list(requests)

    def done() -> bool:
        while waiting and waiting[-1].Test():
            waiting.pop()
        return not waiting

    until(done, what, state)


def check_algorithm(algorithm: str | None, *primitives: str) -> None:
    """Raise ValueError unless each of these primitives has the algorithm."""
    if algorithm is not None:
        for primitive in primitives:
            find_schedule(primitive, algorithm)


class Driver:
    """A driver on a communicator of its own.  All ranks call its methods together, unless a method says otherwise.

    The default hooks for checkpoints are for drivers whose parameters are replicated on every rank.
    """

    comm: MPI.Comm
    parameters: dict[str, Array]
    optimizer: Optimizer | None = None  # of the driver itself, on this rank
    outer: Optimizer | None = None  # an optimizer whose state is saved beside that of the optimizer of the program

    def check_saving(self) -> None:
        """Raise RuntimeError if a checkpoint of the present state would lose something."""

    @property
    def saved(self) -> dict[str, Arrays]:
        """The arrays that a checkpoint holds: ``{kind: {key: array}}``.  The kind "parameters" is always there."""
        return {"parameters": self.parameters}

    def pieces(self, arrays: Arrays) -> Iterator[tuple[str, str, Piece]]:
        """Split arrays with the keys of `saved` into (key, name of the parameter, piece of that parameter)."""
        for name, piece in whole_pieces(arrays):
            yield name, name, piece

    @property
    def saves(self) -> bool:
        """Whether the arrays of this rank go into a checkpoint: only on rank 0, because one replica is enough."""
        return self.comm.rank == 0

    @property
    def private(self) -> Mapping[str, Array]:
        """The arrays that belong to this rank only; a checkpoint holds them as well."""
        return {}

    def check_private(self, arrays: Mapping[str, Array]) -> None:
        """Raise ValueError if `load_private` cannot take these arrays."""

    def load_private(self, arrays: Mapping[str, Array]) -> None:
        """Restore the private arrays; discard all that are not given."""

    def loaded(self) -> None:
        """React to a checkpoint that has been loaded into the arrays."""

    @property
    def independent(self) -> bool:
        """Whether each rank updates its parameters on its own, so that the state of its optimizer is its own."""
        return False

    @property
    def updates(self) -> bool:
        """Whether optimizers of the driver itself update the parameters, maybe on other ranks."""
        return False

    @property
    def replicated(self) -> bool:
        """Whether each rank that `holds_state` has all of it; otherwise each has a part of its own."""
        return True

    @property
    def holds_state(self) -> bool:
        """Whether the arrays in `saved` are up to date on this rank after each step."""
        return True

    @property
    def lockstep(self) -> bool:
        """Whether the arrays of all ranks must be those after the same step."""
        return True

    def communicators(self) -> Iterator[MPI.Comm]:
        """Yield the communicators of this driver."""
        yield self.comm

    def revoke(self) -> None:
        """Make all ranks leave their calls of this driver with an error; it is unusable afterwards."""
        for comm in self.communicators():
            if comm != MPI.COMM_NULL:
                revoke(comm)

    def free(self) -> None:
        """Free the requests and the communicators.  The end of a ``with`` block calls this too."""
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.free()

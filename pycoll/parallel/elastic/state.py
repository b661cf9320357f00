"""The state of elastic training, from which training goes on after ranks have failed."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll

from ...base.numbers import check_positive, ranks_named
from ..checkpoint import load, save
from ..checkpoint_files import MANIFEST
from ..contents import Contents
from ..ddp import DistributedDataParallel
from ..driver import Driver
from ..fsdp import FullyShardedDataParallel
from ..optimizers import Optimizer
from ..ps.parameter_server import ParameterServer
from .choice import choose, missing
from .copies import Copier, Label, StateCopy
from .redistribute import redistribute
from .replacement import join, replace
from .replicas import NeighborCopies

Make = Callable[["pycoll.Comm"], "tuple[Driver, Optimizer | None]"]
SUPPORTED = DistributedDataParallel, FullyShardedDataParallel, ParameterServer


class Recovery(NamedTuple):
    """How training went on after ranks had failed.

    Attributes
    ----------
    failed : int
        The number of ranks that had failed.
    ranks : int
        The number of ranks that go on.
    step : int
        The step after which they go on.
    repeated : int
        The number of steps that this rank repeats.
    seconds : float
        The time from the error on this rank until training goes on.
    """

    failed: int
    ranks: int
    step: int
    repeated: int
    seconds: float


class State:
    """What training needs to go on: a driver, its optimizer, and the number of complete steps.

    All ranks of `comm` create it together.  `run` calls a training function with it.

    Parameters
    ----------
    make : callable
        ``make(comm)`` creates the driver and the optimizer on a communicator, and returns both.  The optimizer is None
        if it belongs to the driver, as in `ParameterServer`.  It is called at the start, and again after each failure,
        with the ranks that go on; it must create the same model each time.
    comm : MPI.Comm, optional
        The communicator; COMM_WORLD by default.  A duplicate of it is used.
    every : int
        The number of steps between two copies of a shard to the memory of another rank.  After a failure, up to this
        number of steps are repeated.  `DistributedDataParallel` needs no copies, and repeats at most one step.
    checkpoint : path-like, optional
        The directory of a checkpoint.  If there is one, training goes on from it at the start, and also if all copies
        of a shard are lost.
    size : int, optional
        The wanted number of ranks.  Failed ranks are replaced by new processes, which run the same program.

    Attributes
    ----------
    driver, optimizer
        What `make` has returned.
    comm : pycoll.Comm
        The communicator of the ranks that train.
    step : int
        The number of complete steps, the same on all ranks that compute when `run` calls the training function.  The
        data of a step must be a function of this number.
    recoveries : list of Recovery
        What happened so far.

    Raises
    ------
    ValueError
        If `every` or `size` is not positive.
    TypeError
        In `run`, if `make` does not return one of the drivers of data parallelism, and an optimizer or None.
    """

    driver: Driver
    optimizer: Optimizer | None
    comm: pycoll.Comm

    def __init__(
        self,
        make: Make,
        *,
        comm: MPI.Comm | None = None,
        every: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        size: int | None = None,
    ) -> None:
        for name, value in (("every", every), ("size", 1 if size is None else size)):
            check_positive(name, value, "number")
        self._make, self._every, self._size = make, every, size
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self.step, self.recoveries = 0, list[Recovery]()
        self.comm = join() or pycoll.Comm(MPI.Intracomm(MPI.COMM_WORLD if comm is None else comm).Dup())
        self._build = 0  # counts the drivers
        self._copies: list[StateCopy] = []  # from which training goes on, until the driver has the state
        self._ready = self._began = False  # whether the driver has the state; whether all ranks had it once
        self._copier: Copier | None = None
        self._neighbors: NeighborCopies | None = None
        self._failed: tuple[float, int, int] | None = None  # when, how many ranks, after which step

    def commit(self) -> None:
        """Record that a step is complete.

        Each rank that computes calls this directly after the optimizer, or `ParameterServer.step`, has updated.
        """
        self.step += 1
        if self.driver.replicated:
            self._updates = self._counts()
        if self._neighbors and not self._serves:
            self._neighbors.take(self.step)

    def save(self, **extra: Any) -> None:
        """Write the checkpoint; all ranks call this together.

        With a parameter server, call `ParameterServer.finish` before.

        Parameters
        ----------
        **extra
            Values that JSON supports, which are saved too.

        Raises
        ------
        RuntimeError
            If there is no directory for a checkpoint.  Other errors are those of `pycoll.parallel.save`.
        """
        if not self._ready:
            raise RuntimeError("save: there is no driver before `run`")
        if self._checkpoint is None:
            raise RuntimeError("save: State was created without a directory for a checkpoint")
        save(self._checkpoint, self.driver, self.optimizer, {**extra, "step": self.step})

    def begin(self, copies: bool = True) -> None:
        """Make a driver and give it the newest state that the ranks have; `run` calls this on all ranks.

        Parameters
        ----------
        copies : bool
            Whether to keep copies of shards on other ranks.  They are useless if MPI cannot go on without failed ranks.
        """
        self._copying = copies
        if self._size and self.comm.size < self._size and self._failed:
            self.comm = replace(self.comm, self._size - self.comm.size)
        labels = [copy.label for copy in self._copies]
        builds, began, found = zip(*self.comm.allgather((self._build, self._began, labels)))
        self._build = 1 + max(builds)
        self.driver, self.optimizer = _checked(self._make(self.comm))
        self._restore(Contents(self.driver, self.optimizer), [*itertools.chain(*found)], any(began))
        self._ready = True
        self.comm.Barrier()
        self._began, self._copies = True, []  # all ranks have the state
        if self._failed:
            at, failed, step = self._failed
            seconds = time.monotonic() - at
            self.recoveries.append(Recovery(failed, self.comm.size, self.step, max(0, step - self.step), seconds))
            self._failed = None

    def _restore(self, contents: Contents, found: list[Label], began: bool) -> None:
        choice = choose(found, self.driver.lockstep)
        if choice:
            copies = [copy for copy in self._copies if copy.label in choice.labels]
            contents.put(redistribute(self.comm, copies, contents), {})
            self.step = choice.step
        elif self._checkpoint and (self._checkpoint / MANIFEST).exists():
            self.step = self._load(self._checkpoint)
        elif began:
            lost = missing(found)
            whose = f" of {ranks_named(lost)}" if lost else ""
            raise RuntimeError(f"all copies of the state{whose} are lost, and there is no checkpoint")
        self._keep_copies(contents)

    def _load(self, checkpoint: Path) -> int:
        """Load a checkpoint; return the number of its step."""
        extra = load(checkpoint, self.driver, self.optimizer)
        if not (isinstance(extra, dict) and "step" in extra):
            raise ValueError(
                f"{checkpoint}: this checkpoint has no number of steps, because State.save did not write it"
            )
        step: int = extra["step"]
        return step

    def _keep_copies(self, contents: Contents) -> None:
        """Prepare for the next failure."""
        self._contents, self._base = contents, self.step
        self._updates, self._updates_before = self._counts(), self._count_updates()
        self._serves = isinstance(self.driver, ParameterServer) and self.driver.roles.server is not None
        if isinstance(self.driver, ParameterServer):
            self.driver.on_update(self._served)
        self._copier = Copier(contents) if self.driver.holds_state else None
        self._neighbors = None
        if self._copying and not self.driver.replicated:
            self._neighbors = NeighborCopies(self.comm, self._copier, self._every, self.driver.lockstep, self._build)
            self._neighbors.take(self.step)
            self._neighbors.wait()

    def _served(self) -> None:
        """React to an update of the server on this rank."""
        assert isinstance(self.driver, ParameterServer)
        step = self._base + self.driver.steps
        if not self.driver.roles.works:
            self.step = step
        if self._neighbors:
            self._neighbors.take(step)

    def _counts(self) -> list[int]:
        """The number of updates of each parameter; steps may leave parameters out."""
        optimizer = self._contents.optimizer
        return [*optimizer.steps.values()] if optimizer else []

    def _count_updates(self) -> int:
        return max(self._counts(), default=0)

    def finish(self) -> None:
        """End the exchange of copies; `run` calls this on all ranks, after the last step."""
        if self._neighbors:
            self._neighbors.finish()

    def end(self) -> None:
        """Free what belongs to the state, but not the driver; `run` calls this on all ranks, if no rank has failed."""
        if self._neighbors:
            self._neighbors.free()
        self._neighbors = None

    def revoke(self) -> None:
        """Make all ranks leave their calls, because a rank has failed."""
        if self._failed is None:
            self._failed = time.monotonic(), 0, self.step
        self.comm.Revoke()
        if driver := getattr(self, "driver", None):
            driver.revoke()
        if self._neighbors:
            self._neighbors.revoke()

    def recover(self) -> None:
        """Go on with the other ranks: keep what this rank has of the state, and shrink the communicator."""
        if self._ready:
            self._copies += self._present()
        _abandoned.append((getattr(self, "driver", None), self._neighbors))
        self._ready, self._neighbors, self._copier = False, None, None
        at, failed, step = self._failed or (time.monotonic(), 0, self.step)
        comm = self.comm.Shrink()
        self._failed = at, failed + self.comm.size - comm.size, step
        self.comm = comm

    def _present(self) -> list[StateCopy]:
        """The copies on this rank; of a replica, one is made now."""
        if self._neighbors:
            return [*self._neighbors.copies()]
        if not self._copier:
            return []
        memory = np.empty(self._copier.frame.nbytes, np.uint8)
        label = Label(self._build, self._reached(), 0, (0,))
        self._copier.into(memory)(label.step)
        return [StateCopy(label, self._copier.frame, memory)]

    def _reached(self) -> int:
        """The step whose updates the parameters on this rank have."""
        if isinstance(self.driver, ParameterServer):  # the answers to later steps have not arrived
            return self._base + self._count_updates() - self._updates_before
        return self.step + (self._counts() != self._updates)  # an update may not be committed yet


def _checked(made: Any) -> tuple[Driver, Optimizer | None]:
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], SUPPORTED)):
        kinds = ", ".join(kind.__name__ for kind in SUPPORTED)
        raise TypeError(f"make must return a driver ({kinds}) and an optimizer or None, not {made!r}")
    driver, optimizer = made
    return driver, optimizer


_abandoned: list[object] = []  # MPI may still access their memory

"""Runs a training function, and runs it again on the other ranks when ranks have failed."""

from __future__ import annotations

import atexit
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from mpi4py import MPI

import pycoll

from ...base.user_warnings import warn
from ...runtime.failures import TOLERANT, is_failure
from .replacement import replaces
from .state import State

T = TypeVar("T")

FINISHED, FAILED, BROKEN = 0b11, 0b01, 0b00  # the last one: with an error that has nothing to do with failed ranks
NOT_TOLERANT = "MPI cannot go on without it (Open MPI can, with mpiexec --with-ft ulfm)"
HEAD_START = 1.0  # seconds for a rank to report its error before other ranks end the job
# seconds until the end of a process that hangs in MPI_Finalize, after a failure, and if a rank dies there
PATIENCE, LONG_PATIENCE = 10.0, 60.0


def run(train: Callable[[State], T], state: State) -> T:
    """Train on the ranks of a state, and go on without those that fail.

    Parameters
    ----------
    train : callable
        The training function, with the state as argument.  It goes on after `State.step` steps, and calls
        `State.commit` after each step.  All communication is on ``state.comm`` and with ``state.driver``, which are
        new after a failure.
    state : State
        The state of training.

    Returns
    -------
    object
        What `train` returns on this rank.

    Raises
    ------
    RuntimeError
        On all ranks, if all copies of a part of the state are lost and there is no checkpoint.  On the other ranks, if
        `train` raises an exception on a rank that does not come from a failed rank.
    CollectiveTimeout
        If a rank hangs for more than ``PYCOLL_TIMEOUT`` seconds.

    Notes
    -----
    Ranks can only go on with an MPI library that has user-level failure mitigation (ULFM), for example with
    ``mpiexec --with-ft ulfm`` of Open MPI.  Otherwise a failure ends the job; started again, it goes on from the
    checkpoint.

    When `train` raises an error of pycoll or MPI because a rank has failed, or an error raised ``from`` such an error,
    all ranks leave `train`.  They agree on the newest step from which they can go on, make a new driver, and exchange
    the state:

    - `DistributedDataParallel`: the parameters and the state of the optimizer are those of the most advanced replica.
    - `FullyShardedDataParallel`, and `ParameterServer` with updates on servers: ranks also have copies of the shards of
      their predecessor, from memory to memory.  If a rank fails together with the next one, its shard is lost.
    - `ParameterServer` with updates on workers: as `DistributedDataParallel`.

    References
    ----------
    Bland et al., "Post-failure recovery of MPI communication capability: Design and rationale", 2013 (ULFM).
    https://doi.org/10.1177/1094342013488238

    Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018; its module
    ``elastic`` has a similar interface.

    Examples
    --------
    Linear regression that goes on without the ranks that fail::

        import numpy as np
        from pycoll.parallel import SGD, DistributedDataParallel, elastic

        inputs = np.random.default_rng(0).random((1000, 3))
        targets = inputs @ [[1.0], [2.0], [3.0]]

        def make(comm):
            parameters = {"weight": np.zeros((3, 1))}
            return DistributedDataParallel(parameters, comm=comm), SGD(parameters, lr=0.3)

        def train(state):
            weight = state.driver.parameters["weight"]
            while state.step < 500:
                batch = np.arange(state.step * 64, (state.step + 1) * 64) % 1000
                mine = batch[state.comm.rank :: state.comm.size]
                error = inputs[mine] @ weight - targets[mine]
                state.driver.ready("weight", inputs[mine].T @ error / len(mine))
                state.optimizer.step(state.driver.synchronize())
                state.commit()
            return weight

        weight = elastic.run(train, elastic.State(make))
    """
    if not TOLERANT:
        if state.comm.size > 1 and state.comm.rank == 0:
            warn(f"a rank that fails ends this job: {NOT_TOLERANT}")
        return _trained(train, state)
    _end_together(state)
    while True:
        try:
            result = _trained(train, state)
            how = _agreed(state.comm, FINISHED)
        except pycoll.CollectiveTimeout:  # the ranks that hang would not agree
            _states.clear()
            raise
        except BaseException as error:
            failed = is_failure(state.comm, error)
            state.revoke()
            how = _agreed(state.comm, FAILED if failed else BROKEN)
            if not failed:
                raise
        if how == FINISHED:
            state.end()
            return result
        if how == BROKEN:
            time.sleep(HEAD_START)
            raise RuntimeError("training has ended with an error on another rank")
        state.recover()


def _trained(train: Callable[[State], T], state: State) -> T:
    state.begin(copies=TOLERANT)
    result = train(state)
    state.finish()
    return result


def _agreed(comm: pycoll.Comm, how: int) -> int:
    """How training has ended: the worst of all ranks; the same on all ranks, even if some fail meanwhile."""
    while True:
        try:
            return comm.Agree(how)
        except MPI.Exception as error:  # on all ranks, unless all know the failed ranks
            if error.Get_error_class() != MPI.ERR_PROC_FAILED:
                raise
            comm.Ack_failed()
            how &= FAILED


_states: list[State] = []  # the last one of this process, unless other ranks hang


def _end_together(state: State) -> None:
    """End this process even if it hangs in MPI_Finalize, as it may if a rank has died (Open MPI issue 11404)."""
    atexit.unregister(_end)
    atexit.register(_end)
    _states[:] = [state]


def _end() -> None:
    how = _agreed(_states[0].comm, FINISHED) if _states else FAILED  # until then, other ranks may have work to do
    failed = how != FINISHED or _states[0].recoveries or replaces()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE if failed else LONG_PATIENCE)
    if failed:
        if _states:
            _states[0].revoke()  # otherwise, MPI_Finalize may wait for messages of processes that have ended
        if replaces():
            MPI.Comm.Get_parent().Revoke()

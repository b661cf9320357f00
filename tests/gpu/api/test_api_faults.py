"""Kernels that fail, and kernels that take long.

The call raises the error of the GPU, and never returns a wrong result.  While a rank waits for its GPU, MPI makes
progress.
"""

import time
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from tests.gpu.api.test_collectives import is_real, produced
from tests.gpu.standin import faults
from tests.mpi.native import SIZE

pytestmark = pytest.mark.mpi
LAUNCHES = range(6)


@pytest.fixture
def faulty(xp, monkeypatch):
    """Yield a communicator for calls that fail, on all ranks or only on some."""
    if is_real(xp) or SIZE == 1:
        pytest.skip("needs the stand-in, and messages")
    monkeypatch.setattr(settings, "TIMEOUT", 2.0)
    comm = MPI.COMM_WORLD.Dup()  # not freed, because messages may be pending
    pycoll.attach(comm)
    yield comm
    faults.clear()


def blocking(send, comm):
    return pycoll.allreduce(send, algorithm="ring", comm=comm)


def nonblocking(send, comm):
    request = pycoll.iallreduce(send, algorithm="ring", comm=comm)
    for _ in range(100):
        if request.Test():
            break
    return request.wait()  # with a timeout, because another rank may have failed


def outcome(comm, array, call, launches=None, run=None):
    """Return the result, or the error as text, of an all-reduce where the GPU fails after so many operations."""
    send, expected = array
    faults.launch, faults.run = launches, run
    try:
        result = call(send, comm)
        found = result.get()
    except (RuntimeError, pycoll.CollectiveTimeout) as error:
        return str(error)
    finally:
        faults.clear()
    np.testing.assert_array_equal(found, expected)
    return "complete"


@pytest.mark.parametrize("after", LAUNCHES)
@pytest.mark.parametrize("call", [blocking, nonblocking])
@pytest.mark.parametrize("kind", ["launches", "run"])
def test_on_all_ranks(xp, way, faulty, call, kind, after):
    """The same operation fails on all ranks, while it is launched or while it runs."""
    array = produced(xp, np.arange(3000.0)), np.arange(3000.0) * SIZE
    xp.cuda.get_current_stream().synchronize()
    error = "cudaErrorLaunchOutOfResources" if kind == "launches" else "cudaErrorIllegalAddress"
    said = outcome(faulty, array, call, **{kind: after})
    assert said == "complete" or error in said or "did not finish" in said or "cannot be used" in said
    if after == 0:
        assert error in said


@pytest.mark.parametrize("call", ["allreduce", "send"])
def test_mpi_makes_progress_while_a_kernel_runs(xp, way, tmp_path, call):
    """Rank 0 waits for a kernel; meanwhile rank 1 completes a long message that rank 0 has started to receive."""
    if is_real(xp) or SIZE == 1:
        pytest.skip("needs the stand-in, and another rank")
    WORLD, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
    path = Path(WORLD.bcast(str(tmp_path))) / call
    message = np.zeros(1 << 20)
    if rank == 0:
        array, deadline = xp.empty(5), time.monotonic() + 20
        receive = WORLD.Irecv(message, 1)
        xp.cuda.get_current_stream().hold(lambda: path.exists() or time.monotonic() > deadline)
        array[...] = 1
        if call == "send":
            pycoll.send(array, MPI.PROC_NULL)
        else:
            pycoll.allreduce(array, comm=MPI.COMM_SELF)
        assert path.exists(), "rank 1 could not complete its message"
        receive.Wait()
    elif rank == 1:
        WORLD.Send(message, 0)
        path.touch()
    WORLD.Barrier()

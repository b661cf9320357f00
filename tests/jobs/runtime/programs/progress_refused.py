"""Without MPI_THREAD_MULTIPLE, there is no progress thread."""

import mpi4py

mpi4py.rc.thread_level = "single"

import numpy as np

import pycoll
from tests.jobs import calls


def refused():
    calls.raises(RuntimeError, ["MPI_THREAD_MULTIPLE"], pycoll.progress_thread)
    assert (pycoll.iallreduce(np.ones(3)).wait() == calls.size).all()


calls.run(globals())

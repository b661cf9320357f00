"""All-reduce and broadcast arrays in GPU memory.

Run it with ``mpiexec -n 2 python examples/gpu.py``.  It needs CuPy and a GPU; if one is missing, it prints a message.
"""

import sys

import numpy as np
from mpi4py import MPI

import pycoll

pycoll.abort_on_exception()
comm = MPI.COMM_WORLD
reason = ""
try:
    import cupy

    cupy.cuda.runtime.getDeviceCount()
except ImportError:
    reason = "CuPy is not installed"
except cupy.cuda.runtime.CUDARuntimeError as error:
    reason = f"there is no GPU ({error})"
if any(reasons := comm.allgather(reason)):
    if comm.rank == 0:
        print(f"skipped: {next(filter(None, reasons))}")
    sys.exit()

device = pycoll.select_device()  # spreads the ranks of a host evenly over its GPUs
gradient = cupy.asarray(np.arange(1_000_000, dtype=np.float32) + comm.rank)
with pycoll.traffic() as sent:
    average = pycoll.allreduce(gradient, op="avg")  # returns a CuPy array; needs no synchronization
assert isinstance(average, cupy.ndarray)
expected = np.arange(1_000_000, dtype=np.float32) + (comm.size - 1) / 2
assert np.allclose(average.get(), expected)

pycoll.bcast(gradient, root=comm.size - 1)
assert gradient.get()[0] == comm.size - 1
if comm.rank == 0:
    path = "staged through host memory" if sent.staged else "direct"
    print(f"averaged on GPU {device}, {path}: {average.get()[0]}")

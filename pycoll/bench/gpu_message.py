"""Send messages between the GPU memory of two ranks: ``mpiexec -n 2 python -m pycoll.bench.gpu_message``.

With ``UCX_PROTO_INFO=y``, UCX prints the protocol of each kind of message; ``cuda_ipc`` copies from GPU memory to GPU
memory.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.tune.timing import alternate

from .device import on_gpu


def main() -> None:
    """Time an exchange of two messages of 64 MiB, without the collectives of pycoll."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    xp, peer = on_gpu(comm), comm.size - 1 - comm.rank
    given = xp.asarray(np.full(16 << 20, comm.rank, "f4"))
    got = xp.zeros(given.shape, given.dtype)
    xp.cuda.get_current_stream().synchronize()
    calls = {"exchange": lambda: comm.Sendrecv(given, peer, recvbuf=got, source=peer)}
    seconds = alternate(comm, calls, 1.0)["exchange"]
    last = float(got.get()[-1])
    assert last == peer, f"rank {comm.rank} received {last}"
    if comm.rank == 0:
        print(f"an exchange of 64 MiB takes {float(np.median(seconds)) * 1e3:.3f} ms")


if __name__ == "__main__":
    main()

"""Transform a field in three dimensions, distributed over a grid of ranks, as in the documentation of mpi4py-fft."""

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

comm = MPI.COMM_WORLD
fft = PFFT(comm, (32, 32, 32), axes=(0, 1, 2), dtype=float, grid=(-1,))
field = newDistArray(fft, False)
field[:] = np.random.default_rng(comm.rank).random(field.shape)
for _ in range(50):
    spectrum = fft.forward(field, newDistArray(fft, True))
    back = fft.backward(spectrum, newDistArray(fft, False))
    assert np.allclose(back, field)
    energy = comm.allreduce(np.sum(np.abs(spectrum) ** 2))

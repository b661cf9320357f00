"""Solve a block-diagonal system, and filter an image and its halo, as in the tutorials of pylops-mpi."""

import numpy as np
import pylops
import pylops_mpi
from mpi4py import MPI
from pylops_mpi.basicoperators.Halo import MPIHalo

comm = MPI.COMM_WORLD
rng = np.random.default_rng(comm.rank)
blocks = pylops_mpi.MPIBlockDiag([pylops.MatrixMult(rng.normal(size=(40, 30)))])
x = pylops_mpi.DistributedArray(global_shape=30 * comm.size)
x[:] = 1.0
y = blocks @ x
start = pylops_mpi.DistributedArray(global_shape=30 * comm.size)
start[:] = 0.0
found = pylops_mpi.cgls(blocks, y, x0=start, niter=50)[0]
assert np.allclose(found.asarray(), 1.0, atol=1e-3)

image = pylops_mpi.DistributedArray(global_shape=64 * 64)
image[:] = np.arange(image.local_shape[0])
laplacian = pylops_mpi.MPILaplacian(dims=(64, 64))
for _ in range(20):
    image = laplacian @ image

sides = MPI.Compute_dims(comm.size, 2)
halo = MPIHalo(dims=(64, 64), halo=1, proc_grid_shape=tuple(sides))
field = pylops_mpi.DistributedArray(
    global_shape=64 * 64, base_comm=halo.cart_comm, local_shapes=[64 * 64 // comm.size] * comm.size
)
field[:] = 1.0
for _ in range(20):
    field = halo.H @ (halo @ field)

"""Sample a Gaussian at several temperatures, one on each rank, as in the example of PTMCMCSampler."""

import tempfile

import numpy as np
from mpi4py import MPI
from PTMCMCSampler.PTMCMCSampler import PTSampler

comm = MPI.COMM_WORLD
folder = comm.bcast(tempfile.mkdtemp())
sampler = PTSampler(
    3,
    lambda x: -0.5 * float(x @ x),
    lambda x: 0.0 if abs(x).max() < 10 else -np.inf,
    np.eye(3) * 0.01,
    comm=comm,
    outDir=folder,
)
sampler.sample(np.zeros(3), 10000, burn=1000, isave=1000, Tskip=100)

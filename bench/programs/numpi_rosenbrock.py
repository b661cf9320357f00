"""Minimize a function of distributed variables with L-BFGS, as in the tests of NuMPI."""

import numpy as np
from mpi4py import MPI
from NuMPI.Optimization.LBFGS import l_bfgs

comm = MPI.COMM_WORLD
scale = np.linspace(1.0, 10.0, 40)


def value_and_gradient(x):
    """Return the sum over all ranks, and the gradient of this one."""
    return comm.allreduce(float(np.sum(scale * (x - 1.0) ** 4))), 4.0 * scale * (x - 1.0) ** 3


l_bfgs(value_and_gradient, np.zeros((40, 1)).ravel(), jac=True, comm=comm, gtol=1e-6, maxiter=60)

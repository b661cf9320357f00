"""Exit with the code that is given as argument."""

import sys

from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
sys.exit(int(sys.argv[1]))

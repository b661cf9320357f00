"""The buffers of the caller: recognized, checked, and converted to arrays, addresses and block positions."""

from mpi4py import MPI  # noqa: F401  # before the modules here, which `pycoll.run` imports with it

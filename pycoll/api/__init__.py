"""The public functions and classes: collectives, requests, the communicator and messages."""

from mpi4py import MPI  # noqa: F401  # before the modules here, which `pycoll.run` imports with it

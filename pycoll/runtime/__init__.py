"""Runs calls: channels of communicators, executables, tasks in flight, GPUs, and the recording of traces."""

from mpi4py import MPI  # noqa: F401  # before the modules here, which `pycoll.run` imports with it

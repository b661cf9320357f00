"""The public functions and classes: collectives, requests, the communicator and messages."""

from ..base.hooks import call_before_mpi

call_before_mpi()

"""The public functions and classes: collectives, requests, the communicator and messages."""

from ..base import hooks

for call in hooks.before_mpi:
    call()

"""The buffers of the caller: recognized, checked, and converted to arrays, addresses and block positions."""

from ..base import hooks

for call in hooks.before_mpi:
    call()

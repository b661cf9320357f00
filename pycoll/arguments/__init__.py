"""The buffers of the caller: recognized, checked, and converted to arrays, addresses and block positions."""

from ..base.hooks import call_before_mpi

call_before_mpi()

"""Runs calls: channels of communicators, executables, tasks in flight, GPUs, and the recording of traces."""

from ..base import hooks

for call in hooks.before_mpi:
    call()

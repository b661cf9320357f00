"""Runs calls: channels of communicators, executables, tasks in flight, GPUs, and the recording of traces."""

from ..base.hooks import call_before_mpi

call_before_mpi()

"""Runs calls: channels of communicators, executables, tasks in flight, GPUs, and the recording of traces."""

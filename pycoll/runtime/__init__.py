"""Runs calls: the channel of a communicator, executables, tasks in flight, GPUs, and the recording of traces."""

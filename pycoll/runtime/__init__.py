"""What runs a call: the channel of a communicator, executables, tasks in flight; GPUs; what is recorded of it."""

"""The tests of torch.distributed on the backend "pycoll": ``python -m tests.torch_suite --ranks 3``."""

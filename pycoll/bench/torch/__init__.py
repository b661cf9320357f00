"""Compare pycoll with gloo under torch.distributed: ``mpiexec -n 2 python -m pycoll.bench.torch``."""

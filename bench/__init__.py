"""Benchmarks of pycoll and MPI: ``python -m bench`` in a checkout, ``python -m pycoll.bench`` where it is installed."""

from importlib.util import find_spec

_missing = [name for name in ("matplotlib", "tabulate", "threadpoolctl", "tqdm") if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(f"the benchmarks need {', '.join(_missing)}: pip install 'pycoll-mpi[bench]'")

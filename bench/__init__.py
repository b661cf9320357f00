"""Benchmarks: ``python -m bench`` times the collectives, and ``python -m bench.train`` times the training drivers.

In an installed package, they are named ``pycoll.bench`` and ``pycoll.bench.train``.
"""

from importlib.util import find_spec

_missing = [name for name in ("matplotlib", "threadpoolctl", "tqdm") if find_spec(name) is None]
if _missing:
    raise ModuleNotFoundError(f"the benchmarks need {', '.join(_missing)}: install pycoll with the extra `bench`")

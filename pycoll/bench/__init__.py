"""Benchmarks: ``python -m pycoll.bench`` times the collectives, ``pycoll.bench.train`` times the training drivers."""

import sys
from importlib.util import find_spec

from pycoll.base.command_line import exit_once

_missing = [name for name in ("threadpoolctl", "tqdm") if find_spec(name) is None]
if _missing:
    _needs = f"python -m {__name__} needs {', '.join(_missing)}: pip install 'pycoll-mpi[bench]'"
    _needs += ", or in a checkout pip install '.[bench]'"
    if sys.argv[0] != "-m":  # imported, not run
        raise ModuleNotFoundError(_needs)
    exit_once(_needs)

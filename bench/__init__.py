"""Benchmarks: ``python -m bench`` times the collectives, and ``python -m bench.train`` times the training drivers.

In an installed package, they are named ``pycoll.bench`` and ``pycoll.bench.train``.
"""

import os
import sys
import time
from importlib.util import find_spec

_missing = [name for name in ("threadpoolctl", "tqdm") if find_spec(name) is None]
if _missing:
    _needs = f"python -m {__name__} needs {', '.join(_missing)}: pip install 'pycoll-mpi[bench]'"
    _needs += ", or in a checkout pip install '.[bench]'"
    if sys.argv[0] != "-m":  # imported, not run
        raise ModuleNotFoundError(_needs)
    # without MPI: the rank is in a variable of the launcher
    _ranks = [os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK") if name in os.environ]
    if _ranks[:1] in ([], ["0"]):
        sys.stderr.write(f"{_needs}\n")
    else:
        time.sleep(0.5)  # a launcher may end the job as soon as a rank has failed
    sys.exit(1)

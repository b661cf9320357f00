"""Runs all tests: ``python -m tests``.

First those that need no MPI (tests/pure), those that launch jobs of their own (tests/jobs) and those that submit Slurm
jobs (tests/slurm, skipped where there is no sbatch; tests/slurm/cluster makes a cluster of one machine).  Then, under
mpiexec at several numbers of ranks, with the MPI that is installed: tests/mpi and tests/gpu (without a GPU on a
stand-in for CuPy).  tests/README.md says how the folders are laid out.
What follows ``--`` goes to pytest.
"""

import argparse
import os
import subprocess
import sys
import time
from importlib.util import find_spec

from .launch import run

LIMIT = 600  # seconds for one number of ranks
# up to how many ranks drivers, and buffers on a GPU, are tested; what they are built on is tested on more
FOLDERS = {"tests/mpi": 1 << 30, "tests/mpi/parallel": 4, "tests/gpu": 3}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    parser.add_argument("-n", "--ranks", default="1,2,3,4,5,8", help="numbers of ranks (%(default)s)")
    parser.add_argument("--no-pure", action="store_true", help="leave out what does not depend on the MPI")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    outcome = {}
    for folder in ["jobs", "slurm"] if options.no_pure else ["pure", "jobs", "slurm"]:
        spread = ["-n", "auto"] if folder == "pure" and find_spec("xdist") else []
        command = [sys.executable, "-m", "pytest", "-q", "-rs", *spread, f"tests/{folder}", *options.pytest]
        outcome[folder] = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    for ranks in map(int, options.ranks.split(",")):
        print(f"\n{ranks} ranks:", flush=True)
        start = time.perf_counter()
        ignored = [f"--ignore={folder}" for folder, most in FOLDERS.items() if ranks > most]
        arguments = ["tests/mpi", "tests/gpu", *ignored, *options.pytest]
        job = run(ranks, ["-m", "pytest", "-q", "--with-mpi", *arguments], LIMIT, show=True)
        seconds = time.perf_counter() - start
        outcome[f"{ranks} ranks"] = job.code or int(job.timed_out or bool(job.left))
        print(f"{ranks} ranks: {'failed' if outcome[f'{ranks} ranks'] else 'passed'} in {seconds:.0f} s", flush=True)
    failed = [name for name, code in outcome.items() if code]
    print(f"\n{len(outcome) - len(failed)} passed, {len(failed)} failed" + "".join(f"\n  {name}" for name in failed))
    return int(bool(failed))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())

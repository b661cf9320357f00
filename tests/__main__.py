"""Run the tests: a selection in about five minutes, or with --all all of them.

First run the tests without MPI (tests/pure), those that launch MPI jobs (tests/jobs), and with --all those that submit
Slurm jobs (tests/slurm; skipped without sbatch; tests/slurm/cluster sets up a cluster on one machine).  Then run
tests/mpi and tests/gpu under mpiexec at several numbers of ranks.  Without a GPU, tests/gpu use a stand-in for CuPy.

Without --all, tests marked `slow` are left out, Hypothesis generates fewer examples, and there are fewer numbers of
ranks.  Arguments after ``--`` are passed to pytest.  tests/README.md describes the folders.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from .launch import COUNTS, run

LIMIT = 3600.0  # seconds for one number of ranks; each test has a limit of its own
QUICK, ALL = "2,3", "1,2,3,4,5,8"  # numbers of ranks
# the most ranks for drivers and for GPU buffers, with --all
MOST = {"tests/mpi/parallel": 4, "tests/gpu": 3}


def on_one(folder: str, arguments: list[str]) -> bool:
    """Run a folder's tests in pytest alone, on all cores if they need no MPI; whether they failed."""
    spread = ["-n", "auto"] if folder == "pure" and find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *spread, f"tests/{folder}", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0


def on_ranks(ranks: int, arguments: list[str], everything: bool) -> bool:
    """Run the tests of ranks under mpiexec; whether they failed."""
    ignored = [f"--ignore={folder}" for folder, most in MOST.items() if ranks > (most if everything else 2)]
    command = ["-m", "pytest", "-q", "--with-mpi", "tests/mpi", "tests/gpu", *ignored, *arguments]
    job = run(ranks, command, LIMIT, show=True)
    return job.code != 0 or job.timed_out or bool(job.left)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="run all tests")
    parser.add_argument("-n", "--ranks", help=f"numbers of ranks ({QUICK}; with --all {ALL})")
    parser.add_argument("--no-pure", action="store_true", help="leave out what does not depend on the MPI")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    quick = [] if options.all else ["-m", "not slow", "--hypothesis-profile=quick"]
    folders = [] if options.no_pure else ["pure"]
    folders += ["jobs", "slurm"] if options.all else ["jobs"]
    runs = {folder: (on_one, folder) for folder in folders}
    for ranks in map(int, (options.ranks or (ALL if options.all else QUICK)).split(",")):
        runs[f"{ranks} rank{'s' * (ranks > 1)}"] = (partial(on_ranks, everything=options.all), ranks)

    passed, failed, lines = 0, 0, []
    with tempfile.TemporaryDirectory() as directory:
        for name, (function, what) in runs.items():
            print(f"\n{name}:", flush=True)
            counts = Path(directory) / name
            os.environ[COUNTS] = str(counts)
            start = time.perf_counter()
            wrong = function(what, [*quick, *options.pytest])
            seconds = time.perf_counter() - start
            right, bad = map(int, counts.read_text().split()) if counts.exists() else (0, 0)
            bad = max(bad, int(wrong))  # a job that was ended has counted nothing
            passed, failed = passed + right, failed + bad
            lines.append(f"{name}: {right} passed, {bad} failed in {seconds:.0f} s")
    print("", *lines, f"{passed} passed, {failed} failed", sep="\n")
    return int(failed > 0)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())

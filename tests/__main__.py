"""Run a selection of the tests, in about five minutes on two idle cores, or all of them with --all.

First run the tests that launch MPI jobs (tests/jobs), which often wait, and beside them those that need no MPI
(tests/pure), with a lower priority.  With --all, also run the tests that submit Slurm jobs (tests/slurm), which are
skipped without sbatch; tests/slurm/cluster sets up a cluster on one machine.  Then run tests/mpi and tests/gpu under
mpiexec on several numbers of ranks.  Without a GPU, tests/gpu uses a stand-in for CuPy.

Without --all, tests marked `slow` are skipped, Hypothesis generates fewer examples, and fewer numbers of ranks are
used; with more than two ranks, only the collectives, exact sums, sparse exchanges and domains are tested.  With --all,
tests marked `slow` are only run on two ranks.  With more than three, only the same parts are tested, and the drivers of
training on four; with more than four, not the collectives on registered buffers, nor persistent ones.
Arguments after ``--`` are passed to pytest.  tests/README.md describes the directories.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from .launch import COUNTS, run

LIMIT = 3600.0  # seconds per number of ranks; each test has its own limit as well
FOLDERS = "jobs", "pure", "slurm", "mpi"  # in this order
QUICK, ALL = "2,3", "1,2,3,4,5,8"  # numbers of ranks
# the maximum number of ranks for neighbors, for drivers, for PyTorch and for GPU buffers, with --all
MOST = {"tests/mpi/api/test_comm_neighbors.py": 5, "tests/mpi/parallel": 4, "tests/mpi/torch": 3, "tests/gpu": 3}
ALL_FOLDERS, ALL_FORMS = 3, 4  # with more ranks, even --all only runs collectives and those above, and fewer forms
ALL_CASES = 2  # ranks; slow cases are the same with other numbers
COLLECTIVES = "test_collectives*", "test_nonblocking*", "test_registered*", "test_requests_persistent*"

# tests of a few seconds that run on all numbers of ranks
ALWAYS = [
    f"tests/mpi/{name}.py" for name in ("runtime/test_exact_calls", "runtime/test_attach", "api/test_sparse_exchange")
]


def selection(slow: bool, once: bool, kept: str = "") -> list[str]:
    """Return the arguments of pytest that leave out tests marked `slow`, unless they are marked `kept`, or `once`."""
    skipped = [f"(not slow or {kept})" if kept else "not slow"] * (not slow) + ["not once"] * (not once)
    examples = [] if slow else ["--hypothesis-profile=quick"]
    return [*(["-m", " and ".join(skipped)] if skipped else []), *examples]


def on_one(folder: str, arguments: list[str]) -> bool:
    """Run the tests of a directory without mpiexec; return True if they failed."""
    return subprocess.run(_command(folder, arguments), stdin=subprocess.DEVNULL).returncode != 0


def beside(folder: str, arguments: list[str], counts: Path) -> Callable[[], bool]:
    """Start the tests of a directory.

    The result waits for them, prints their output, and returns True if they failed.
    """
    log, environment = counts.with_suffix(".log"), os.environ | {COUNTS: str(counts)}
    with log.open("wb") as output:
        files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(["nice", "-n", "3", *_command(folder, arguments)], **files, env=environment)

    def end() -> bool:
        failed = process.wait() != 0
        print(log.read_text(errors="replace"), flush=True)
        return failed

    return end


def _command(folder: str, arguments: list[str]) -> list[str]:
    """The command for the tests of a directory, on all cores if they need no MPI."""
    spread = ["-n", "auto"] if folder == "pure" and find_spec("xdist") else []
    return [sys.executable, "-m", "pytest", "-q", "-rs", "--durations=15", *spread, f"tests/{folder}", *arguments]


def on_ranks(ranks: int, arguments: list[str], everything: bool) -> bool:
    """Run the tests of tests/mpi and tests/gpu under mpiexec; return True if they failed."""
    skipped = {folder for folder, most in MOST.items() if ranks > most}
    folders = [folder for folder in ("tests/mpi", "tests/gpu") if folder not in skipped]  # pytest does not ignore these
    if ranks > (ALL_FOLDERS if everything else 2):
        patterns = COLLECTIVES[: len(COLLECTIVES) if ranks <= ALL_FORMS else 2] if everything else COLLECTIVES[:1]
        folders = sorted(str(path) for pattern in patterns for path in Path("tests/mpi/api").glob(f"{pattern}.py"))
        folders += ALWAYS
        folders += [path for path, most in MOST.items() if everything and ranks <= most]
    ignored = [f"--ignore={folder}" for folder in skipped]
    command = ["-m", "pytest", "-q", "--durations=15", "--with-mpi", *folders, *ignored, *arguments]
    job = run(ranks, command, LIMIT, show=True)
    return job.code != 0 or job.timed_out or bool(job.left)


def folders(text: str) -> list[str]:
    """Return the directories in a list separated by commas; raise ArgumentTypeError for other names."""
    if unknown := set(text.split(",")) - {*FOLDERS}:
        raise argparse.ArgumentTypeError(f"{min(unknown)!r} is not one of {', '.join(FOLDERS)}")
    return text.split(",")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="run all tests")
    parser.add_argument("-n", "--ranks", help=f"numbers of ranks ({QUICK}; with --all {ALL})")
    parser.add_argument("--only", metavar="FOLDERS", type=folders, help=f"some of {', '.join(FOLDERS)}; gpu is in mpi")
    parser.add_argument("--no-pure", action="store_true", help="skip tests that do not depend on the MPI library")
    parser.add_argument(
        "--quick-jobs",
        action="store_true",
        help="skip slow tests that launch MPI or Slurm jobs, even with --all, except those of ranks that die",
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    if find_spec("pytest") is None:
        sys.exit("python -m tests needs pytest: pip install '.[test]'")
    left_out = ["pure"] * options.no_pure + ["slurm"] * (not options.all)
    chosen = [folder for folder in FOLDERS if (folder in options.only if options.only else folder not in left_out)]
    runs: dict[str, Callable[[], bool]] = {}

    def arguments(slow: bool) -> list[str]:
        # only one of the MPI libraries runs tests marked `ulfm`
        return [*selection(options.all and slow, not options.no_pure, "ulfm" * options.all), *options.pytest]

    for folder in chosen:
        if folder != "mpi":
            slow = folder == "pure" or not options.quick_jobs
            runs[folder] = partial(on_one, folder, arguments(slow))
    numbers = (options.ranks or (ALL if options.all else QUICK)).split(",") if "mpi" in chosen else []
    for ranks in map(int, numbers):
        name = f"{ranks} rank{'s' * (ranks > 1)}"
        runs[name] = partial(on_ranks, ranks, arguments(ranks == ALL_CASES), options.all)

    passed, failed, lines = 0, 0, []
    with tempfile.TemporaryDirectory() as directory:
        if "jobs" in runs and "pure" in runs:
            runs["pure"] = beside("pure", arguments(True), Path(directory, "pure"))
        for name, run_tests in runs.items():
            print(f"\n{name}:", flush=True)
            counts = Path(directory) / name
            os.environ[COUNTS] = str(counts)
            start = time.perf_counter()
            wrong = run_tests()
            seconds = time.perf_counter() - start
            right, bad = map(int, counts.read_text().split()) if counts.exists() else (0, 0)
            bad = max(bad, int(wrong))  # a job that was killed has written no counts
            passed, failed = passed + right, failed + bad
            lines.append(f"{name}: {right} passed, {bad} failed in {seconds:.0f} s")
    print("", *lines, f"{passed} passed, {failed} failed", sep="\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

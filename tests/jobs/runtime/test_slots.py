"""Shared memory of a host: ranks that die, that do not call, signals, forks, and what is left behind."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"


def outcome(name, count=4, ranks=3, environment=None, options=()):
    job = run(ranks, [PROGRAMS / "shared_memory.py", name, str(count)], environment=environment, options=options)
    if "no core:" in job.output:
        pytest.skip(job.output)
    assert not job.timed_out, job.output
    return job


@pytest.mark.parametrize("count", [4, 1 << 17])
def test_neighbours_of_a_killed_rank_raise_an_error(count):
    job = outcome("killed", count)
    if "RankFailed" in job.output or "after" in job.output:  # mpiexec may end the job before
        assert "(2,) after 0." in job.output and "unusable" in job.output, job.output


@pytest.mark.parametrize("count", quick(4, 1 << 17))
def test_a_timeout_names_the_rank_that_has_not_called(count):
    job = outcome("missing", count, environment={"PYCOLL_TIMEOUT": "2"})
    assert "did not finish within its timeout of 2 s: it is waiting for rank" in job.output


@pytest.mark.parametrize("count", quick(4, 1 << 15))
@pytest.mark.parametrize("timeout", ["", "30"])
def test_signal_handlers_that_raise_errors(count, timeout):
    job = outcome("signals", count, environment={"PYCOLL_TIMEOUT": timeout} if timeout else {})
    assert job.code == 0 and job.output.count("signals and calls") == 3, job.output


@pytest.mark.parametrize("shared", quick("1", "0"))
def test_signals_in_collectives_of_objects(shared):
    job = outcome("long_objects", environment={"PYCOLL_SHARED_MEMORY": shared})
    assert job.code == 0 and job.output.count("signals") == 3, job.output


@pytest.mark.parametrize("shared", quick("0", "1"))
def test_pickling_that_calls_collectives(shared):
    job = outcome("nested_objects", environment={"PYCOLL_SHARED_MEMORY": shared})
    assert job.code == 0 and job.output.count("nested") == 3, job.output


@pytest.mark.parametrize(("name", "text"), [("forked", "went on"), ("several_threads", "threads")])
def test_forks_and_threads(name, text):
    job = outcome(name, 5000)
    assert job.code == 0 and job.output.count(text) == 3, job.output


@pytest.mark.parametrize("setting", ["PYCOLL_SHARED_MEMORY=0", "PYCOLL_EXECUTOR=python"])
def test_a_rank_without_slots(setting):
    """All ranks use messages then."""
    assert run(3, [PROGRAMS / "without_slots.py", setting]).output.count("right") == 3


def test_a_rank_in_a_container():
    """Ranks whose processes cannot be seen by others share no memory with them."""
    apart = ["unshare", "-r", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not shutil.which(apart[0]) or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    job = run(3, [PROGRAMS / "started_by.py", PROGRAMS / "without_slots.py", *apart])
    if "only Open MPI" in job.output:
        pytest.skip("only Open MPI connects processes of several PID namespaces of a host")
    assert job.output.count("right") == 3, job.output

"""Traces of jobs with PYCOLL_TRACE set, successful or not, and ``python -m pycoll.trace`` on them."""

import subprocess
import sys
from pathlib import Path

import pytest

from pycoll import core
from tests.jobs.api.test_abort import FAILING
from tests.launch import run
from tests.tracing import named, whole

PROGRAMS = Path(__file__).parent / "programs"
REGISTERED = PROGRAMS / "traced_registered.py"

pytestmark = pytest.mark.once  # the MPI library matters little here


def job(directory, *arguments, ranks=2):
    return run(ranks, arguments, environment={"PYCOLL_TRACE": str(directory)})


def command(*arguments):
    done = subprocess.run([sys.executable, "-m", "pycoll.trace", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_training_step_shows_its_phases(tmp_path):
    ended = job(tmp_path, PROGRAMS / "traced_training.py")
    assert ended.code == 0, ended.output
    events = whole(tmp_path)
    for rank in range(2):
        phases = named(events, "phase", "X", rank)
        assert [phases.count(name) for name in ("forward", "backward", "synchronize", "optimizer")] == [2] * 4
        assert named(events, "phase", "b", rank) == ["bucket 0", "bucket 1"] * 2
        assert named(events, "collective", "b", rank).count("allreduce.ring") == 4
    code, output = command(tmp_path)
    assert code == 0
    for text in ("2 ranks", "allreduce.ring", "backward", "slowest: rank", "overlap", "ahead of rank 0"):
        assert text in output
    code, _ = command(tmp_path, "-o", tmp_path / "timeline.svg")
    assert code == 0 and "allreduce.ring" in (tmp_path / "timeline.svg").read_text()


def test_an_exception_on_one_rank_leaves_the_trace_of_all(tmp_path):
    ended = job(tmp_path, FAILING, "exception", ranks=3)
    assert ended.code != 0 and not ended.timed_out and "the second rank has had enough" in ended.output
    events = whole(tmp_path)
    for rank in range(3):
        assert named(events, "collective", "X", rank)[0].startswith("allreduce.")


def test_registered_memory(tmp_path):
    ended = job(tmp_path, REGISTERED, ranks=3)
    assert ended.code == 0 and "pycoll" not in ended.output, ended.output
    looks = "look for registered buffers" in named(whole(tmp_path), "step", "X", 0)
    assert looks is not bool(core.problem)
    code, output = command(tmp_path)
    assert code == 0 and "allreduce.ring" in output


@pytest.mark.parametrize("end", ["success", "failure"])
def test_a_trace_that_cannot_be_written_is_reported(tmp_path, end):
    ended = job(tmp_path, REGISTERED, tmp_path / "trace.json", end)
    assert (ended.code == 0) is (end == "success") and ("RuntimeError: this one" in ended.output) is (end == "failure")
    assert f"could not write {tmp_path}/trace.json: " in ended.output and "_end" not in ended.output


@pytest.mark.slow
def test_a_killed_rank_leaves_what_it_did(tmp_path):
    (tmp_path / "trace.json").write_text("that of an earlier job")
    ended = job(tmp_path, FAILING, "killed")
    assert ended.code != 0 and not (tmp_path / "trace.json").exists()
    code, output = command(tmp_path)
    assert code == 0 and "2 ranks" in output and "allreduce." in output
    command(tmp_path, "-o", tmp_path / "trace.json")
    assert all(named(whole(tmp_path), "collective", "X", rank) for rank in range(2))


@pytest.mark.slow
def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    ended = job(tmp_path / "file" / "below", FAILING, "exception")
    assert ended.code != 0 and "NotADirectoryError" in ended.output
    code, output = command(tmp_path)
    assert code == 1 and "no trace was found" in output and "Traceback" not in output

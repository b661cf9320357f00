"""Ranks are killed at chosen moments of training, and the others go on."""

import json
import re
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import ULFM

pytestmark = pytest.mark.ulfm

PROGRAMS = Path(__file__).parent / "programs"


def train(kind, dying, folder="-", ranks=4, environment=None, **options):
    """Train in a job; `dying` has pairs of a rank and a step for each moment."""
    program = [PROGRAMS / "training.py", kind, str(folder), json.dumps(dying), json.dumps(options)]
    job = run(ranks, program, 120, options=ULFM, environment=environment)
    assert not job.timed_out and job.left == [], job.output
    return job


def recoveries(job, ranks, step=None, error=1e-3):
    """Check that training ended well; return what happened on each rank."""
    assert job.code == 0, job.output
    ended = re.search(r"ends with (\d) ranks, error (\S+)", job.output)
    assert ended and int(ended[1]) == ranks and float(ended[2]) < error, job.output
    found = [json.loads(line) for line in re.findall(r"went on: (.*)", job.output)]
    assert found and all(recovery["seconds"] < 5 for recovery in found), job.output
    if step is not None:
        assert {recovery["step"] for recovery in found} == {step}, job.output
    return found


MOMENTS = {
    "ddp": {"forward": [[1, 10], [3, 10]], "recovery": [[5, 2]], "backward": [[0, 30]], "save": [[2, 50]]},
    "fsdp": {"forward": [[1, 10], [3, 10]], "recovery": [[5, 2]], "backward": [[0, 30]], "save": [[2, 50]]},
    "ps": {"forward": [[1, 10], [3, 10]], "recovery": [[5, 2]], "backward": [[0, 30]], "save": [[7, 50]]},
}
LATE = {"ddp": {"update": [[4, 70]]}, "fsdp": {"update": [[4, 70]]}, "ps": {"server": [[6, 70]]}}


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps"])
def test_killed_again_and_again(kind, tmp_path):
    """Two at once, one while the others recover, the first one, one in `save`, and one during or after an update."""
    found = recoveries(train(kind, MOMENTS[kind] | LATE[kind], tmp_path, 8), 2)
    assert {(recovery["failed"], recovery["ranks"]) for recovery in found} == {(3, 5), (1, 4), (1, 3), (1, 2)}
    for recovery in found:
        assert recovery["step"] - {5: 10, 4: 30, 3: 50, 2: 70}[recovery["ranks"]] in (-1, 0, 1)
        assert recovery["repeated"] <= 1
        assert recovery["ranks"] != 3 or recovery["step"] == 50


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_killed_in_the_middle_of_a_collective(kind):
    found = recoveries(train(kind, {"middle": [[2, 5]]}, more=2_000_000, steps=8), 3, error=9)
    assert {recovery["step"] for recovery in found} <= {5, 6}
    assert max(recovery["repeated"] for recovery in found) <= 1


@pytest.mark.parametrize("kind", ["fsdp", "ddp", "ps"])
def test_killed_after_the_last_step(kind):
    job = train(kind, {"end": [[1, 100]]}, exits=False)
    assert job.code == 0 and "ends with 3 ranks" in job.output, job.output


def test_two_neighbors_at_once_fall_back_on_the_checkpoint(tmp_path):
    recoveries(train("fsdp", {"forward": [[1, 70], [2, 70]]}, tmp_path), 2, step=50)


@pytest.mark.parametrize(
    "options",
    [{"servers": 2}, {"servers": 2, "colocated": True}, {"mode": "bounded", "staleness": 1}, {"mode": "async"}],
    ids=str,
)
def test_killed_server(options):
    victim = 0 if options.get("colocated") else 3
    found = recoveries(
        train("ps", {"server": [[victim, 50]]}, **options), 3, error=0.1 if options.get("mode") else 1e-3
    )
    if options.get("mode") != "async":  # then, fast workers repeat what the slowest one has not done
        assert max(recovery["repeated"] for recovery in found) <= 2 + options.get("staleness", 0)


@pytest.mark.parametrize("kind", ["fsdp", "ps"])
def test_copies_that_are_sent(kind):
    """As between hosts."""
    dying = {"update": [[0, 50]]} if kind == "fsdp" else {"server": [[3, 50]]}
    found = recoveries(train(kind, dying, environment={"PYCOLL_REGISTERED": "0"}), 3)
    assert max(recovery["repeated"] for recovery in found) <= 1


def test_workers_that_update():
    recoveries(train("ps", {"backward": [[1, 50]]}, update="worker"), 3)


def test_the_result_is_that_of_the_other_ranks_alone(tmp_path):
    """To the bit: as if training had been started on them from the same step."""
    recoveries(train("ddp", {"forward": [[1, 50]]}, then=str(tmp_path)), 3)


@pytest.mark.parametrize("kind", ["ddp", "ps"])
def test_an_error_of_the_program_ends_training_on_all_ranks(kind):
    """Even if a rank fails at the same time, and the program does not end at exceptions."""
    job = train(kind, {"bug": [[1, 50]], "update": [[2, 49]]}, abort=False)
    assert job.code != 0 and "LookupError: a bug" in job.output, job.output
    # rank 2 too, unless it fails first
    assert job.output.count("gave up: training has ended with an error on another rank") in (2, 3), job.output


def test_a_rank_that_hangs_is_named():
    job = train("ddp", {"forward": [[1, 50]]}, signal="SIGSTOP", environment={"PYCOLL_TIMEOUT": "2"})
    assert job.code != 0 and "rank 1" in job.output, job.output


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_new_processes_take_the_place_of_failed_ones(kind):
    found = recoveries(train(kind, {"forward": [[2, 50]]}, size=4, exits=False), 4)
    assert [(recovery["failed"], recovery["ranks"]) for recovery in found] == [(1, 4)] * 3


def test_a_rank_that_never_ends_mpi():
    """Without a failure before, MPI_Finalize waits for it; all processes end after a while."""
    job = run(3, [PROGRAMS / "hangs_at_exit.py"], 60, options=ULFM)
    assert not job.timed_out and job.output.count("trained") == 3, job.output

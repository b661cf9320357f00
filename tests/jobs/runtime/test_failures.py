"""After ranks were killed, all others raise RankFailed in their collective, and only that communicator ends."""

import json
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import ULFM

pytestmark = pytest.mark.ulfm

PROGRAMS = Path(__file__).parent / "programs"

FORMS = (
    (("blocking", [0]), ("tree", [5]), ("nonblocking", [1, 2]), ("polled", [2]), ("persistent", [1])),
    (("registered", [0, 6]), ("bcast", [2]), ("barrier", [2]), ("drop-in", [1]), ("native", [2])),
)


@pytest.mark.parametrize("forms", FORMS, ids=["allreduce", "others"])
def test_all_others_raise_rank_failed(forms):
    job = run(8, [PROGRAMS / "killed_ranks.py", json.dumps(forms)], 120, options=ULFM)
    assert not job.timed_out and job.left == [], job.output
    assert "rank 0 went on" in job.output and "rank 1 went on" in job.output, job.output


def test_calls_that_create_communicators():
    job = run(3, [PROGRAMS / "killed_before_first_call.py"], options=ULFM)
    assert not job.timed_out and job.output.count("names it") == 4, job.output


DETECTOR = "mpi_ft_detector", "mpi_ft_detector_period", "mpi_ft_detector_timeout"


def test_a_rank_that_exits_with_another_status_than_0():
    detector = [word for name, value in zip(DETECTOR, ("true", "0.5", "2")) for word in ("--mca", name, value)]
    job = run(3, [PROGRAMS / "exited_rank.py"], options=[*ULFM, *detector])
    assert not job.timed_out and job.output.count("went on") == 2, job.output


def test_advice_on_how_to_detect_it():
    job = run(3, [PROGRAMS / "exited_rank.py"], environment={"PYCOLL_TIMEOUT": "1"}, options=ULFM)
    assert not job.timed_out and job.output.count("has advice") == 2, job.output

"""After a rank has been killed, the others revoke and shrink the communicator and continue, as with MPI collectives."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import ULFM

pytestmark = pytest.mark.ulfm

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent", "several"])
def test_the_others_go_on(form):
    ring = {"PYCOLL_ALLREDUCE": "ring"}  # in the ring, rank 0 does not wait for a message from rank 2
    job = run(4, ["-m", "pycoll.run", PROGRAMS / "revoke_after_kill.py", form], environment=ring, options=ULFM)
    assert not job.timed_out and job.left == []
    for rank in (0, 1, 3):
        assert f"rank {rank} went on" in job.output


@pytest.mark.parametrize("ranks", [3, 1])
def test_a_communicator_that_is_revoked_while_all_live(ranks):
    job = run(ranks, ["-m", "pycoll.run", PROGRAMS / "revoke_alive.py"], options=ULFM)
    assert not job.timed_out and job.output.count("went on") == ranks, job.output

"""When one rank fails, the job ends soon with the traceback of that rank, and no process is left."""

import pytest

from tests.launch import run
from tests.quick import ULFM, quick

FAILING_PROGRAM = """
import numpy as np, pycoll
from mpi4py import MPI
pycoll.abort_on_exception()
pycoll.allreduce(np.ones(3))
if MPI.COMM_WORLD.rank == 1:
    raise RuntimeError("the second rank has had enough")
pycoll.barrier()
"""

BAD_ARGUMENT_PROGRAM = FAILING_PROGRAM.replace(
    'raise RuntimeError("the second rank has had enough")', "pycoll.allreduce(np.ones(3), np.ones(4))"
)

SAME_ERRORS = """
import numpy as np, time
from mpi4py import MPI
world = MPI.COMM_WORLD
def work():
    if world.rank == 1:
        raise KeyError("that of rank 1")
    world.Allreduce(np.ones(3), np.ones(4))
world.Barrier()
time.sleep(0.4 * (world.rank == 3))
work()
"""

FAILING_TEST = """
import pytest, pycoll
from mpi4py import MPI
pytestmark = pytest.mark.mpi
def test_that_fails_on_one_rank():
    assert MPI.COMM_WORLD.rank != 1, "the second rank has had enough"
    pycoll.barrier()
"""

HANGING_TEST = """
import pytest, pycoll
from mpi4py import MPI
@pytest.mark.mpi
@pytest.mark.timeout(3)
def test_that_hangs():
    if MPI.COMM_WORLD.rank != 1:
        pycoll.barrier()
"""


HANGING_DRAWN_TEST = """
import pytest, pycoll
from hypothesis import given, strategies
from mpi4py import MPI
@pytest.mark.mpi
@given(number=strategies.integers())
def test_drawn(together, number):
    together(check, number)
def check(number):
    assert MPI.COMM_WORLD.rank != 1, "the second rank has had enough"
    pycoll.barrier()
"""

BROKEN_MODULE = """
from mpi4py import MPI
assert MPI.COMM_WORLD.rank != 1, "the second rank has had enough"
import pytest, pycoll
@pytest.mark.mpi
def test_that_waits():
    pycoll.barrier()
"""

FAILING_THREAD = FAILING_PROGRAM.replace("raise", "import threading\n    def fail(): raise").replace(
    "pycoll.barrier()", "if MPI.COMM_WORLD.rank == 1: threading.Thread(target=fail).start()\npycoll.barrier()"
)

EXITING_THREAD = """
import sys, threading, numpy as np, pycoll
pycoll.abort_on_exception()
thread = threading.Thread(target=sys.exit, args=[1])
thread.start()
thread.join()
assert pycoll.allreduce(np.ones(3)).all()
print("came to its end", flush=True)
"""


def ends_soon(arguments, *expected, ranks=3, options=()):
    job = run(ranks, arguments, options=options)
    assert not job.timed_out and job.code != 0 and job.left == []
    for text in expected:
        assert text in job.output
    return job


def test_an_uncaught_exception_aborts_the_job():
    ends_soon(["-c", FAILING_PROGRAM], "rank 1 of 3 failed", "RuntimeError: the second rank has had enough")


def test_the_same_error_of_several_ranks_is_printed_once(tmp_path):
    (program := tmp_path / "program.py").write_text(SAME_ERRORS)
    output = ends_soon(["-m", "pycoll.run", str(program)], ranks=4).output
    assert output.count("Traceback") == 2 and output.count("ValueError: mismatch in send count 3") == 1
    assert "rank 1 of 4 failed and ends the job" in output and "KeyError: 'that of rank 1'" in output
    assert "rank 3 of 4 failed with the same error as rank 0" in output
    assert (
        output.count(f'File "{program}", line 8, in work') == 1 and "pycoll/" not in output and "<string>" not in output
    )


@pytest.mark.ulfm
def test_with_fault_tolerance_too():
    ends_soon(["-c", FAILING_PROGRAM], "RuntimeError: the second rank has had enough", options=ULFM)


def test_a_bad_argument_on_one_rank_aborts_the_job():
    ends_soon(["-c", BAD_ARGUMENT_PROGRAM], "ValueError: recvbuf has 4 elements, but 3 are received")


@pytest.mark.slow
def test_an_exception_in_a_thread_aborts_the_job():
    ends_soon(["-c", FAILING_THREAD], "RuntimeError: the second rank has had enough")


def test_a_thread_that_exits_does_not_abort_the_job():
    job = run(2, ["-c", EXITING_THREAD])
    assert job.code == 0 and job.output.count("came to its end") == 2, job.output


@pytest.mark.parametrize(
    "text",
    [
        FAILING_TEST,
        pytest.param(HANGING_DRAWN_TEST, marks=pytest.mark.slow),
        pytest.param(BROKEN_MODULE, marks=pytest.mark.slow),
    ],
    ids=["test", "drawn", "module"],
)
def test_a_failing_test_aborts_the_run(tmp_path, text):
    suite = tmp_path / "test_failing.py"
    suite.write_text(text)
    arguments = ["-m", "pytest", "-p", "tests.conftest", "--with-mpi", "-c", "setup.cfg", str(suite)]
    ends_soon(arguments, "rank 1 of 3 failed", "the second rank has had enough")


@pytest.mark.slow
def test_a_hanging_test_ends_the_run(tmp_path):
    suite = tmp_path / "test_hanging.py"
    suite.write_text(HANGING_TEST)
    arguments = ["-m", "pytest", "-p", "tests.conftest", "--with-mpi", "-c", "setup.cfg", str(suite)]
    job = ends_soon(arguments, "rank 0 of 3: Timeout after 3 s in", "test_that_hangs", "pycoll.barrier()")
    assert "_pytest" not in job.output


@pytest.mark.slow
def test_the_launcher_ends_what_runs_too_long():
    job = run(2, ["-c", "from mpi4py import MPI; import time; time.sleep(1000)"], limit=3)
    assert job.timed_out


def test_what_is_left_is_found_and_ended():
    orphan = (
        "from subprocess import DEVNULL, Popen;"
        "Popen(['sleep', '1000'], start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)"
    )
    job = run(1, ["-c", orphan], patience=1)
    assert len(job.left) == 1


@pytest.mark.parametrize("ranks", quick(2, 1))
def test_exit_codes_pass(ranks):
    assert run(ranks, ["-c", "import pycoll; pycoll.abort_on_exception(); pycoll.barrier()"]).code == 0

"""Collectives in flight beside signals, forks, killed ranks and the thread that advances them."""

from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAM = Path(__file__).parent / "programs" / "progress_in_flight.py"


def outcome(*arguments, ranks=2, **environment):
    job = run(ranks, [PROGRAM, *arguments], environment=environment)
    assert not job.timed_out, job.output
    return job


@pytest.mark.parametrize("executor", quick("", "python"))
def test_the_thread_in_the_background_beside_that_of_the_program(executor):
    job = outcome("two_threads", PYCOLL_EXECUTOR=executor)
    assert job.output.count("right") == 2, job.output


@pytest.mark.parametrize("operation", ["own", "sum"])
@pytest.mark.parametrize("variable", quick("PYCOLL_EXECUTOR=core", "PYCOLL_TIMEOUT=20", "PYCOLL_EXECUTOR=python"))
def test_an_exception_of_a_signal_handler_breaks_nothing_off(operation, variable):
    name, value = variable.split("=")
    job = outcome("signals", operation, **{name: value})
    assert job.output.count("right") == 2, job.output


def test_the_exception_of_a_handler_may_be_an_error_of_the_system():
    job = outcome("alarm")
    assert job.output.count("right") == 2, job.output


def test_the_exception_of_a_handler_during_an_operation():
    job = outcome("alarm_in_an_operation")
    assert job.output.count("right") == 2, job.output


@pytest.mark.parametrize("variable", quick("PYCOLL_CHECK=1", "PYCOLL_TIMEOUT=20", "PYCOLL_EXECUTOR=python"))
def test_two_threads_on_two_communicators(variable):
    name, value = variable.split("=")
    job = outcome("two_communicators", **{name: value})
    assert job.output.count("right") == 2, job.output


@pytest.mark.parametrize("how", ["wait", "test"])
def test_a_rank_is_killed_while_several_are_in_flight(how):
    job = outcome("killed", how, ranks=3)
    if "after" in job.output:  # mpiexec may end the job before
        assert "(2,) after 0." in job.output or "[2] after 0." in job.output, job.output


def test_a_forked_process_takes_part_in_nothing():
    job = outcome("fork")
    assert job.output.count("right") == 2, job.output

"""PYCOLL_CHECK, PYCOLL_TIMEOUT and PYCOLL_LOG, tested in separate jobs."""

from pathlib import Path

import pytest

from tests.launch import output_of, run
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"
CONSISTENCY, TIMEOUTS = PROGRAMS / "consistency.py", PROGRAMS / "timeouts.py"
FORMS = quick("blocking", "nonblocking", "persistent")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", quick(2, 4))
@pytest.mark.parametrize("name", ["mismatches", "wrong_arguments"])
def test_all_ranks_raise_an_error_if_their_calls_differ(name, ranks, form):
    output_of(ranks, CONSISTENCY, name, form, CHECK=1)


@pytest.mark.parametrize("form", FORMS)
def test_a_rank_whose_buffers_only_mpi_can_read(form):
    """Without CuPy, MPI serves buffers in GPU memory, but only if every rank passes one."""
    output_of(3, CONSISTENCY, "unreadable", form, CHECK=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"CHECK": 1, "TIMEOUT": 200},
        *(pytest.param(one, marks=pytest.mark.slow) for one in ({"CHECK": 1}, {"TIMEOUT": 200})),
    ],
    ids=" and ".join,
)
@pytest.mark.parametrize("form", FORMS)
def test_right_calls_give_right_results(settings, form):
    output_of(3, CONSISTENCY, "right_calls", form, **settings)


def test_nonblocking_collectives_progress_while_a_rank_reports_wrong_arguments():
    output_of(3, CONSISTENCY, "wrong_while_others_wait", CHECK=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", quick(2, 3))
def test_a_rank_that_never_calls_is_named(form, ranks):
    output_of(ranks, TIMEOUTS, "never_called", form, TIMEOUT=1)


@pytest.mark.parametrize("function", quick("waitall", "waitany"))
def test_waits_for_several_requests_name_it_too(function):
    output_of(2, TIMEOUTS, "wait_for_several", "blocking", function, TIMEOUT=1)


def test_a_message_that_nobody_takes():
    output_of(2, TIMEOUTS, "never_received", TIMEOUT=1)


def test_the_round_is_named():
    output_of(4, TIMEOUTS, "later_rounds", TIMEOUT=1)


def test_a_communicator_is_freed_while_a_collective_waits():
    output_of(2, TIMEOUTS, "freed_early", TIMEOUT=1)


def test_wrong_arguments_where_another_rank_never_calls():
    output_of(2, CONSISTENCY, "wrong_alone", CHECK=1, TIMEOUT=1)


@pytest.mark.parametrize("form", FORMS)
def test_a_truncated_message_hints_at_the_comparison_of_arguments(form):
    output_of(2, CONSISTENCY, "truncated", form)


@pytest.mark.parametrize("name", ["messages", "communicators"])
def test_what_else_waits_says_for_whom(name):
    output_of(2, TIMEOUTS, name, TIMEOUT=30)


def test_algorithms_are_logged_once_with_the_reason():
    output = output_of(2, CONSISTENCY, "logged", LOG="algorithms", BCAST="naive", SHARED_MEMORY=0)
    lines = [line.partition("pycoll.algorithms: ")[2] for line in output.splitlines() if "pycoll.algorithms: " in line]
    expected = [
        "allreduce of 24 bytes (float64) on 2 ranks: recursive_doubling, by the rules for its size",
        "allreduce of 24 bytes (float64) on 2 ranks: tree, requested by the call",
        "bcast of 16 bytes (float64) on 2 ranks: naive, set by PYCOLL_BCAST",
        "scan of 24 bytes (float64) on 2 ranks: ring, set by comm.algorithm",
        "allreduce of 40 bytes (float64) on 2 ranks: recursive_doubling, by the rules for its size",
    ]
    barrier = [line for line in lines if line.startswith("barrier")]
    assert len(barrier) == 2 and sorted(lines) == sorted(2 * expected + barrier)


def test_nothing_is_logged_by_default():
    assert "pycoll.algorithms" not in output_of(1, CONSISTENCY, "logged")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, value",
    [
        ("CHECK", "yes"),
        ("TIMEOUT", "soon"),
        ("TIMEOUT", "0"),
        ("TIMEOUT", "-1"),
        ("TIMEOUT", "nan"),
        ("LOG", "everything"),
        ("ALLREDUCE", "fastest"),
        ("SEGMENT", "0"),
    ],
)
def test_bad_settings_are_refused_by_name(name, value):
    environment = {f"PYCOLL_{name}": value}
    job = run(1, ["-c", "import numpy as np, pycoll; pycoll.allreduce(np.ones(3))"], environment=environment)
    assert job.code != 0 and f"ValueError: environment variable PYCOLL_{name}='{value}'" in job.output


def test_empty_settings_are_none():
    output_of(1, CONSISTENCY, "check_all_is_well", CHECK="", TIMEOUT="", LOG="", ALLREDUCE="")

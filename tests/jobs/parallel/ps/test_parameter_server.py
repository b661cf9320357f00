"""PYCOLL_TIMEOUT with the parameter server: errors name the waiting rank, the missing rank and the step."""

from pathlib import Path

import pytest

from tests.launch import output_of
from tests.quick import quick

PROGRAM = Path(__file__).parent / "programs" / "stopping.py"


def stops(ranks, *arguments):
    output_of(ranks, PROGRAM, *arguments, TIMEOUT=30)


@pytest.mark.parametrize("mode", quick("sync", "bounded"))
def test_a_worker_that_stops(mode):
    stops(3, "worker", "blocking", mode)


@pytest.mark.slow
def test_workers_that_stop_where_gradients_are_applied_at_once():
    stops(3, "both_workers")


def test_a_server_that_stops():
    stops(3, "server")


@pytest.mark.slow
def test_a_worker_that_stops_where_workers_serve():
    stops(2, "worker_and_server")


def test_a_worker_that_does_not_finish():
    stops(2, "before_finish")


@pytest.mark.slow
def test_what_has_timed_out_is_not_used_again():
    stops(2, "at_once")

"""Timing of calls, on a clock that only the calls advance: rounds, medians, budgets."""

import numpy as np
import pytest
from mpi4py import MPI

from pycoll.tune import timing
from pycoll.tune.timing import ROUNDS, alternate, comparable, race, ratio, shares, updated
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


class Clock:
    """A replacement for the module `time`; each rank has its own clock, which starts at 0."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter

    def takes(self, seconds):
        """Return a call that takes this many seconds."""
        return lambda: self.sleep(seconds)

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(timing, "time", found)
    return found


def test_a_time_is_the_slowest_ranks(clock):
    calls = {"late": clock.takes(5e-3 if RANK == SIZE - 1 else 1e-3), "early": clock.takes(2e-3)}
    times = alternate(WORLD, calls, 10, iterations=4)
    assert times["late"] == pytest.approx(np.full(4, 5e-3)) and times["early"] == pytest.approx(np.full(4, 2e-3))


def test_it_ends_when_the_median_is_stable(clock):
    times = alternate(WORLD, {"steady": clock.takes(2e-3)}, 10, least=5)
    assert len(times["steady"]) == 1 + 1 + ROUNDS, "one to see what it costs, a second one, and then enough"


def test_it_ends_when_the_time_is_over(clock):
    random = np.random.default_rng(RANK)
    times = alternate(WORLD, {"noisy": lambda: clock.sleep(random.exponential(5e-3))}, 0.1, least=5)
    assert len(times["noisy"]) >= 2 and 0.05 < WORLD.allreduce(clock.now, MPI.MAX) < 0.4
    assert len(alternate(WORLD, {"slow": clock.takes(3.0)}, 0.1, least=5)["slow"]) == 2


def test_the_slow_drop_out(clock):
    seconds = {"fast": 1e-3, "nearly as fast": 1.1e-3, "slow": 3e-2}
    calls = dict.fromkeys(seconds, 0)

    def counting(name):
        def call():
            calls[name] += 1
            clock.sleep(seconds[name])

        return call

    assert race(WORLD, {name: counting(name) for name in seconds}, 1.0) == pytest.approx(seconds)
    assert 0 < calls["slow"] < calls["nearly as fast"] == calls["fast"]


def test_ratios_of_disturbed_calls():
    """The medians of both calls are arbitrary, because about half of the rounds are disturbed."""
    quiet, disturbed = 1e-5, 8e-5
    these = np.array([quiet, quiet, disturbed, quiet, quiet, quiet, disturbed])
    others = 1.2 * np.array([disturbed, quiet, disturbed, quiet, disturbed, quiet, disturbed])
    assert np.median(others) / np.median(these) == pytest.approx(9.6)
    assert ratio(others, these) == pytest.approx(1.2)
    assert comparable({"these": these, "others": others}) == pytest.approx({"these": quiet, "others": 1.2 * quiet})


def test_calls_that_drop_out_before_the_machine_is_disturbed(clock):
    """All calls take ten times as long after the slow one has dropped out, which stays the slowest."""
    seconds = {"fast": 1e-3, "as fast": 1.01e-3, "slow": 3e-3}
    calls = dict.fromkeys(seconds, 0)

    def counting(name):
        def call():
            calls[name] += 1
            clock.sleep(seconds[name] * (10 if calls["fast"] > 30 else 1))

        return call

    found = race(WORLD, {name: counting(name) for name in seconds}, 1.0)
    assert calls["slow"] <= 30 < calls["fast"]
    assert found["slow"] == pytest.approx(3 * found["fast"]) and found["fast"] == pytest.approx(1e-2)


def test_times_are_updated_in_proportion():
    before = {"a": 1.0, "b": 2.0, "c": 5.0}
    assert updated(before, {"a": 10.0, "b": 20.0, "d": 5.0}) == {"a": 10.0, "b": 20.0, "c": 50.0, "d": 5.0}
    assert updated({}, before) == before


def test_a_race_ends_in_time(clock):
    assert len(race(WORLD, {str(number): clock.takes(0.02) for number in range(5)}, 0.1)) == 5
    assert clock.now < 5 * 0.02 * 2 * 5


def test_shares_of_a_budget(clock):
    found = shares(WORLD, 100.0, [8, 8, 12 << 20])
    assert next(found) == pytest.approx(100 / 6, rel=1e-4)
    clock.sleep(40)
    assert next(found) == pytest.approx(60 / 5, rel=1e-4)
    clock.sleep(50)
    assert next(found) == pytest.approx(10)
    assert list(shares(WORLD, 0.0, [8, 8])) == [0, 0]
    if RANK != 0:
        clock.sleep(7)
    assert list(shares(WORLD, 30.0, [8])) == [30.0], "by the clock of rank 0"

"""What the bench and the tuning measure with: cases, and times."""

import sys
import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from bench.starts import Starts
from pycoll.base.command_line import PAUSE, printed_once
from pycoll.schedule.registry import PRIMITIVES, algorithms_of, find
from pycoll.selection.tuning_file import Candidate
from pycoll.simulate import calibrate
from pycoll.tune.__main__ import Tuner, joined
from pycoll.tune.benchmark_case import FORMS, IN_PLACE, MEASURED, Case
from pycoll.tune.options import nbytes, sizes
from pycoll.tune.timing import alternate, race, shares
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("primitive", MEASURED)
def test_pycolls_call_and_mpis_do_the_same(primitive, form):
    pycoll.attach(WORLD)
    for in_place in (False, True) if primitive in IN_PLACE else (False,):
        for op in ("sum", "prod", "avg") if primitive == "allreduce" else ("max",):
            case = Case(WORLD, primitive, 4096, np.dtype("f8"), in_place, op, root=SIZE - 1)
            blocks = 1 if PRIMITIVES[primitive].cuts else SIZE
            assert primitive == "barrier" or case.nbytes == case.chosen_by * blocks <= 4096
            ours, theirs = case.call(None, form), case.call_native(form)
            assert case.wrong(ours, theirs) == 0
            assert case.wrong(ours, case.call_naive()) == 0
            if case.ours is not None and case.count and not (primitive == "exscan" and RANK == 0):
                assert np.count_nonzero(case.ours), "it was run on numbers"
            case.free()


def test_wrong_elements_are_counted():
    case = Case(WORLD, "allreduce", 400)

    def spoilt():
        case.call("ring")()
        case.ours[2:5] += 1

    assert case.wrong(spoilt, case.call_native()) == 3 * SIZE


def test_a_time_is_the_slowest_ranks():
    times = alternate(
        WORLD, {"late": lambda: time.sleep(5e-3 * (RANK == SIZE - 1)), "early": lambda: None}, 10, iterations=4
    )
    assert len(times["late"]) == len(times["early"]) == 4
    assert times["late"].min() >= 5e-3 and np.median(times["early"]) < 5e-3
    for name in times:
        assert len({array.tobytes() for array in WORLD.allgather(times[name])}) == 1


@pytest.mark.parametrize("slow", [0, SIZE - 1])
def test_no_rank_ends_before_the_first_has_said_why(capsys, slow):
    WORLD.Barrier()
    begin = time.monotonic()
    with pytest.raises(SystemExit, match="2"), printed_once(WORLD):
        time.sleep(0.3 * (RANK == slow))
        sys.stderr.write("wrong")
        sys.exit(2)
    assert time.monotonic() - begin > (0.29 if RANK == 0 else 0.29 + PAUSE)
    assert capsys.readouterr().err == ("wrong" if RANK == 0 else "")


def test_one_rank_ends_all_and_is_heard(capsys):
    with pytest.raises(SystemExit, match="1"), printed_once(WORLD):
        print("all is well")
        if RANK == SIZE - 1:
            sys.stderr.write("no such folder here")
            sys.exit(1)
    said = capsys.readouterr()
    assert said == (("all is well\n", "no such folder here") if RANK == 0 else ("", ""))


def test_who_does_not_end_is_heard_too(capsys):
    with printed_once(WORLD):
        print(f"a warning of {RANK}")
    assert capsys.readouterr().out == ("a warning of 0\n" if RANK == 0 else "")


def test_late_starts_are_seen():
    starts = Starts(WORLD, {"staggered": lambda: None})
    for _ in range(3):
        WORLD.Barrier()
        time.sleep(0.05 * RANK)
        starts.calls["staggered"]()
    late = starts.late()
    if RANK == 0:
        assert late["staggered"].shape == (3, SIZE)
        assert np.median(late["staggered"], axis=0) == pytest.approx(0.05 * np.arange(SIZE), abs=0.04)
    else:
        assert late == {}


def test_a_network_is_calibrated_by_all_hosts_at_once(monkeypatch):
    """Hosts of two ranks, which this one plays; of an odd number of hosts, or ranks, the last is left out."""
    for name, value in {"REPEATS": 1, "SECONDS": 1e-3, "PAUSE": 1e-3, "LONG": 1 << 22}.items():
        monkeypatch.setattr(calibrate, name, value)
    monkeypatch.setattr(MPI, "Get_processor_name", lambda: f"host{RANK // 2}")
    network, missing = calibrate.calibrate(WORLD)
    assert len(set(WORLD.allgather(network))) == 1
    assert missing == (["between"] if SIZE < 3 else []) + (["inside"] if SIZE < 2 else [])
    for name in {"between", "inside"} - set(missing):
        link = getattr(network, name)
        assert 0 < link.beta < 1e-6 and 0 < link.overhead < 1e-2
    apart, together = calibrate._pairs(["a", "a", "b", "c", "d", "d", "e"])
    assert (apart, together) == ([(0, 2), (3, 4)], [(0, 1), (4, 5)])


def test_it_ends_when_the_median_is_stable_or_the_time_is_over():
    assert len(alternate(WORLD, {"steady": lambda: time.sleep(2e-3)}, 10, least=5)["steady"]) < 500
    start = time.perf_counter()
    random = np.random.default_rng(RANK)
    times = alternate(WORLD, {"noisy": lambda: time.sleep(random.exponential(5e-3))}, 0.1, least=5)
    assert len(times["noisy"]) >= 2 and time.perf_counter() - start < 5


def test_the_slow_drop_out():
    calls = dict.fromkeys(("fast", "slow"), 0)

    def counting(name, seconds):
        def call():
            calls[name] += 1
            time.sleep(seconds)

        return call

    medians = race(WORLD, {"fast": counting("fast", 1e-3), "slow": counting("slow", 3e-2)}, 1.0)
    assert 1e-3 <= medians["fast"] < medians["slow"] and medians["slow"] >= 3e-2
    assert calls["slow"] <= calls["fast"]


def test_a_race_ends_in_time():
    calls = {str(number): lambda: time.sleep(0.02) for number in range(5)}
    start = time.perf_counter()
    assert len(race(WORLD, calls, 0.1)) == 5
    assert time.perf_counter() - start < 5 * 0.02 * 2 * 5


def test_shares_of_a_budget():
    found = list(shares(WORLD, 100.0, [8, 8, 12 << 20]))
    assert found[0] == pytest.approx(100 / 6, rel=0.02) and found[2] == pytest.approx(100, rel=0.02)
    assert len(set(map(str, WORLD.allgather(found)))) == 1
    assert list(shares(WORLD, 0.0, [8, 8])) == [0, 0]


@pytest.mark.parametrize("primitive", MEASURED)
def test_each_candidate_is_run(primitive, monkeypatch):
    """Just before it is timed, and so when it is timed too, a call has run the candidate that it stands for."""
    ran = []
    monkeypatch.setattr(
        "pycoll.runtime.dispatch.find", lambda name, algorithm: ran.append(algorithm) or find(name, algorithm)
    )
    tuner, case = Tuner(WORLD.Dup()), Case(WORLD, primitive, 1024)
    case.comm = tuner.comm
    names = [*algorithms_of(primitive), "native"]
    for name in names + names[::-1]:
        call = case.call(None)
        tuner._first(call, Candidate(name))()
        assert ran.pop() == name and not ran
        call()
        assert not ran, "found by its very arguments"
    tuner.comm.Free()


def test_passes_are_joined():
    assert joined([{"a": 1.0, "b": 2.0, "c": 9.0}, {"a": 50.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]) == {"a": 3.0, "b": 2.0}


def test_sizes():
    assert [nbytes(text) for text in ("8", "4K", "1m", "2GiB", "16B")] == [8, 4096, 1 << 20, 2 << 30, 16]
    assert sizes(8, 64) == [8, 16, 32, 64] and sizes(8, 100, 4) == [8, 32] and sizes(8, 24, 2, 8) == [8, 16, 24]
    for wrong in ((0, 8), (16, 8), (8, 16, 1), (8, 16, 2, 0)):
        with pytest.raises(ValueError, match="--"):
            sizes(*wrong)

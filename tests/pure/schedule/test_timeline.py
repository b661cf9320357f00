"""Schedules of pipelines: proof, bubble and activations for all small numbers; and that the proof finds faults."""

import re

import pytest

from pycoll.schedule import pipeline
from pycoll.schedule.pipeline import (
    SCHEDULES,
    Backward,
    BackwardInput,
    BackwardWeights,
    Forward,
    Schedule,
    check,
    moves,
)
from pycoll.schedule.timeline import timeline

CASES = [
    (name, stages, chunks)
    for name in SCHEDULES
    for stages in range(1, 9)
    for chunks in (range(1, 5) if name == "interleaved" else (1,))
]


@pytest.mark.parametrize("name, stages, chunks", CASES)
def test_schedules_are_those_of_their_formulas(name, stages, chunks):
    for batches in range(1, 17):
        if name == "interleaved" and batches % stages:
            continue
        found = timeline(name, stages, batches, chunks)
        schedule = SCHEDULES[name]
        assert found.kept == [schedule.kept(stage, stages, batches, chunks) for stage in range(stages)]
        if name != "zb-h1" or batches >= stages:
            assert found.bubble == pytest.approx(schedule.bubble(stages, batches, chunks))
        else:
            assert found.bubble > schedule.bubble(stages, batches, chunks)


def test_formulas_of_docstrings():
    """Check that the formulas that are read are those that are computed."""
    for schedule in SCHEDULES.values():
        bubble, kept = re.search(r"Bubble: (.*?)[.,] .*Kept: (.*)\.\n", schedule.work.__doc__).groups()
        for s, p, m, v in [(0, 4, 8, 2), (3, 4, 8, 3), (1, 2, 4, 1)]:
            values = {"s": s, "p": p, "m": m, "v": v, "min": min}
            assert eval(bubble, values) == schedule.bubble(p, m, v)
            assert eval(kept, values) == schedule.kept(s, p, m, v)


def test_latency_makes_the_bubble_longer():
    assert timeline("1f1b", 4, 8, latency=0.5).bubble > timeline("1f1b", 4, 8).bubble


@pytest.mark.parametrize(
    "work, error",
    [
        (lambda s, p, m, v: iter([Backward(0), Forward(0)]), "deadlock|order"),
        (lambda s, p, m, v: iter([Forward(0), Forward(0), Backward(0)]), "sends twice|works twice|deadlock"),
        (lambda s, p, m, v: iter([Forward(0)]), "nobody receives|deadlock|order"),
        (lambda s, p, m, v: iter([Forward(0), BackwardInput(0)]), "order"),
        (lambda s, p, m, v: iter([Forward(0), BackwardWeights(0), BackwardInput(0)]), "order"),
    ],
)
@pytest.mark.parametrize("stages", [1, 2])
def test_wrong_schedules_are_found(monkeypatch, work, error, stages):
    monkeypatch.setitem(SCHEDULES, "wrong", Schedule(work, None, None))
    with pytest.raises(AssertionError, match=f"{error}|order"):
        timeline("wrong", stages, 1)


def test_messages_out_of_order_are_found(monkeypatch):
    def work(stage, stages, batches, chunks):
        return iter([Forward(1), Forward(0), Backward(0), Backward(1)])

    monkeypatch.setitem(SCHEDULES, "wrong", Schedule(work, None, None))
    with pytest.raises(AssertionError, match="out of order"):
        timeline("wrong", 2, 2)


@pytest.mark.parametrize(
    "given, error",
    [
        (("2f2b", 2, 2), "schedule '2f2b' is unknown; choose one of: gpipe, 1f1b, interleaved, zb-h1"),
        (("1f1b", 0, 2), "number of stages is 0"),
        (("1f1b", 2, 0), "number of micro-batches is 0"),
        (("1f1b", 2, 2, 3), "'1f1b' has one chunk for each stage, not 3"),
        (("interleaved", 4, 6, 2), "6 micro-batches are not a multiple of 4 stages; use 8"),
    ],
)
def test_wrong_numbers(given, error):
    with pytest.raises(ValueError, match=error):
        check(*given)
    with pytest.raises(ValueError, match=error):
        list(moves(given[0], 0, *given[1:]))


def test_the_module_names_all_kinds_of_work():
    assert {Forward, Backward, BackwardInput, BackwardWeights} == set(pipeline.MicrobatchWork.__subclasses__())

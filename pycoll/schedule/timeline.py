"""When each stage of a pipeline works, if all stages are equally fast; and a proof that a schedule is right."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .pipeline import (
    Backward,
    BackwardInput,
    BackwardWeights,
    Forward,
    MicrobatchWork,
    RecvTensor,
    SendTensor,
    check,
    moves,
)

TIMES: dict[type, float] = {Forward: 1.0, Backward: 2.0, BackwardInput: 1.0, BackwardWeights: 1.0}


class WorkSpan(NamedTuple):
    """Work of a stage, from `start` to `end`."""

    work: MicrobatchWork
    start: float
    end: float


class Timeline(NamedTuple):
    """The work of each stage, in order."""

    stages: list[list[WorkSpan]]

    @property
    def total(self) -> float:
        """The time until the last stage has finished."""
        return max(spans[-1].end for spans in self.stages)

    @property
    def bubble(self) -> float:
        """The share of the time in which stages are idle."""
        busy = sum(span.end - span.start for spans in self.stages for span in spans)
        return 1 - busy / (self.total * len(self.stages))

    @property
    def kept(self) -> list[int]:
        """The largest number of activations that each stage keeps, each of one micro-batch and one chunk."""
        most = []
        for spans in self.stages:
            now = peak = 0
            for span in spans:
                now += isinstance(span.work, Forward)
                peak = max(peak, now)
                now -= isinstance(span.work, Backward | BackwardWeights)
            most.append(peak)
        return most


def timeline(
    name: str,
    stages: int,
    batches: int,
    chunks: int = 1,
    times: dict[type, float] | None = None,
    latency: float = 0.0,
) -> Timeline:
    """Run a schedule on stages that take `times` for each kind of work of a chunk, and prove that it can be run.

    A stage never waits to send.  Then whether a schedule deadlocks does not depend on how fast stages are, so one run
    decides it.

    Raises
    ------
    ValueError
        If the schedule does not fit the numbers.
    AssertionError
        If the schedule is wrong: stages wait for each other, a message has no receiver or does not come, or work is
        missing, done twice, or done in the wrong order.
    """
    check(name, stages, batches, chunks)
    times = times or TIMES
    todo = [list(moves(name, stage, stages, batches, chunks)) for stage in range(stages)]
    at, clocks = [0] * stages, [0.0] * stages
    spans: list[list[WorkSpan]] = [[] for _ in range(stages)]
    arrivals: dict[tuple[int, RecvTensor], float] = {}
    order: dict[tuple[int, int, int, bool], int] = {}  # the last micro-batch that came on each line
    while waiting := [stage for stage in range(stages) if at[stage] < len(todo[stage])]:
        before = sum(at)
        for stage in waiting:
            while at[stage] < len(todo[stage]):
                move = todo[stage][at[stage]]
                if isinstance(move, RecvTensor):
                    if (stage, move) not in arrivals:
                        break
                    clocks[stage] = max(clocks[stage], arrivals.pop((stage, move)))
                    line = stage, move.source, move.chunk, move.backward
                    assert order.get(line, -1) < move.batch, f"stage {stage} receives out of order: {move}"
                    order[line] = move.batch
                elif isinstance(move, SendTensor):
                    message = move.to, RecvTensor(stage, move.batch, move.chunk, move.backward)
                    assert message not in arrivals, f"stage {stage} sends twice: {move}"
                    arrivals[message] = clocks[stage] + latency
                else:
                    start, clocks[stage] = clocks[stage], clocks[stage] + times[type(move)]
                    spans[stage].append(WorkSpan(move, start, clocks[stage]))
                at[stage] += 1
        assert sum(at) > before, f"deadlock: {[todo[stage][at[stage]] for stage in waiting]}"
    assert not arrivals, f"messages that nobody receives: {sorted(arrivals)}"
    for stage, done in enumerate(spans):
        _check_work([span.work for span in done], stage, batches, chunks)
    return Timeline(spans)


def _check_work(done: list[MicrobatchWork], stage: int, batches: int, chunks: int) -> None:
    """Check that each micro-batch goes once forward and once backward through each chunk, in this order."""
    counts = Counter(done)
    assert all(count == 1 for count in counts.values()), f"stage {stage} works twice: {counts.most_common(1)[0][0]}"
    position = {work: number for number, work in enumerate(done)}
    for batch in range(batches):
        for chunk in range(chunks):
            whole: list[MicrobatchWork] = [Forward(batch, chunk), Backward(batch, chunk)]
            split: list[MicrobatchWork] = [
                Forward(batch, chunk),
                BackwardInput(batch, chunk),
                BackwardWeights(batch, chunk),
            ]
            parts = split if type(split[1]) in map(type, done) else whole
            order = [position.get(work, -1) for work in parts]
            assert -1 not in order and order == sorted(order), f"stage {stage}: {parts} is done in the order {order}"
    assert len(done) == batches * chunks * (3 if any(isinstance(work, BackwardInput) for work in done) else 2)

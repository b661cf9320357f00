"""Schedules of pipelines: which micro-batch each stage works on, and when it sends and receives.

A schedule is a generator of the work of one stage.  `moves` adds the messages, which follow from the work: each
micro-batch goes forward through the chunks of a model and back.  Stage s of p has the chunks s, s + p, s + 2 * p, ...;
all schedules but `interleaved` have one chunk for each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, order=True)
class MicrobatchWork:
    """Work on a micro-batch with a chunk of this stage, both numbered from 0."""

    batch: int
    chunk: int = 0


class Forward(MicrobatchWork):
    """The forward pass."""


class Backward(MicrobatchWork):
    """The backward pass."""


class BackwardInput(MicrobatchWork):
    """The part of the backward pass that computes the gradient of the input."""


class BackwardWeights(MicrobatchWork):
    """The part of the backward pass that computes the gradients of weights."""


@dataclass(frozen=True, order=True)
class SendTensor:
    """Send the output of a forward pass, or the gradient of the input of a backward pass, to a chunk of a stage."""

    to: int
    batch: int
    chunk: int
    backward: bool


@dataclass(frozen=True, order=True)
class RecvTensor:
    """Receive the input of a forward pass, or the gradient of its output, for a chunk of this stage."""

    source: int
    batch: int
    chunk: int
    backward: bool


Move = MicrobatchWork | SendTensor | RecvTensor


class Schedule(NamedTuple):
    """A schedule, with formulas of p stages, m micro-batches, v chunks of each stage, and stage s.

    The bubble is the share of the time in which a stage is idle, if all chunks take the same time and a backward pass
    takes twice as long as a forward pass.  `kept` is the largest number of activations of a chunk that stage s keeps.
    """

    work: Callable[[int, int, int, int], Iterator[MicrobatchWork]]
    bubble: Callable[[int, int, int], float]
    kept: Callable[[int, int, int, int], int]


def gpipe(stage: int, stages: int, batches: int, chunks: int = 1) -> Iterator[MicrobatchWork]:
    """Run all forward passes, then all backward passes.

    Bubble: (p - 1) / (m + p - 1).  Kept: m.

    Source: Huang et al., "GPipe", NeurIPS 2019 (arXiv 1811.06965).
    """
    for batch in range(batches):
        yield Forward(batch)
    for batch in range(batches):
        yield Backward(batch)


def one_f_one_b(stage: int, stages: int, batches: int, chunks: int = 1) -> Iterator[MicrobatchWork]:
    """Run backward passes as early as possible, in alternation with forward passes.

    Bubble: (p - 1) / (m + p - 1).  Kept: min(m, p - s).

    Source: Narayanan et al., "PipeDream", SOSP 2019, as PipeDream-Flush in "Memory-Efficient Pipeline-Parallel DNN
    Training", ICML 2021 (arXiv 2006.09503).
    """
    ahead = min(stages - 1 - stage, batches)
    for batch in range(ahead):
        yield Forward(batch)
    for batch in range(batches):
        if batch + ahead < batches:
            yield Forward(batch + ahead)
        yield Backward(batch)


def interleaved(stage: int, stages: int, batches: int, chunks: int) -> Iterator[MicrobatchWork]:
    """Run 1F1B with several chunks for each stage, which shortens the time until the last stage has work.

    The number of micro-batches is a multiple of the number of stages; they take turns in groups of p.

    Bubble: (p - 1) / (v * m + p - 1).  Kept: min(v * m, 2 * (p - 1 - s) + (v - 1) * p + 1).

    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021
    (arXiv 2104.04473).
    """
    total = batches * chunks
    ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, total)

    def unit(number: int) -> tuple[int, int]:
        group, within = divmod(number, stages * chunks)
        chunk, batch = divmod(within, stages)
        return group * stages + batch, chunk

    for number in range(ahead):
        yield Forward(*unit(number))
    for number in range(total):
        if number + ahead < total:
            yield Forward(*unit(number + ahead))
        batch, chunk = unit(number)
        yield Backward(batch, chunks - 1 - chunk)


def zero_bubble(stage: int, stages: int, batches: int, chunks: int = 1) -> Iterator[MicrobatchWork]:
    """Run 1F1B, but compute the gradients of weights later, while a stage would wait: ZB-H1.

    Bubble: (p - 1) / (3 * m + p - 1), for m >= p, if forward, input and weights take the same time.  Kept: min(m, p).

    Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (arXiv 2401.10241).
    """
    ahead = min(stages - 1 - stage, batches)
    for batch in range(ahead):
        yield Forward(batch)
    for batch in range(batches):
        if batch + ahead < batches:
            yield Forward(batch + ahead)
        yield BackwardInput(batch)
        if batch >= stage:
            yield BackwardWeights(batch - stage)
    for batch in range(max(0, batches - stage), batches):
        yield BackwardWeights(batch)


SCHEDULES = {
    "gpipe": Schedule(gpipe, lambda p, m, v: (p - 1) / (m + p - 1), lambda s, p, m, v: m),
    "1f1b": Schedule(one_f_one_b, lambda p, m, v: (p - 1) / (m + p - 1), lambda s, p, m, v: min(m, p - s)),
    "interleaved": Schedule(
        interleaved,
        lambda p, m, v: (p - 1) / (v * m + p - 1),
        lambda s, p, m, v: min(v * m, 2 * (p - 1 - s) + (v - 1) * p + 1),
    ),
    "zb-h1": Schedule(zero_bubble, lambda p, m, v: (p - 1) / (3 * m + p - 1), lambda s, p, m, v: min(m, p)),
}


def check(name: str, stages: int, batches: int, chunks: int = 1) -> Schedule:
    """Return a schedule.

    Raises
    ------
    ValueError
        If the schedule is unknown, or does not fit the numbers.
    """
    if name not in SCHEDULES:
        raise ValueError(f"schedule {name!r} is unknown; choose one of: {', '.join(SCHEDULES)}")
    for what, number in (("stages", stages), ("micro-batches", batches), ("chunks", chunks)):
        if number < 1:
            raise ValueError(f"the number of {what} is {number}, not positive")
    if name != "interleaved" and chunks != 1:
        raise ValueError(f"schedule {name!r} has one chunk for each stage, not {chunks}; 'interleaved' has several")
    if name == "interleaved" and batches % stages:
        raise ValueError(
            f"schedule 'interleaved': {batches} micro-batches are not a multiple of {stages} stages; "
            f"use {batches + -batches % stages} micro-batches"
        )
    return SCHEDULES[name]


def moves(name: str, stage: int, stages: int, batches: int, chunks: int = 1) -> Iterator[Move]:
    """Yield the moves of a stage, with messages before and after the work that they belong to.

    Parameters
    ----------
    name : str
        The schedule.
    stage, stages : int
        The number of the stage, and how many there are.
    batches : int
        The number of micro-batches.
    chunks : int, default 1
        The number of chunks of each stage.

    Raises
    ------
    ValueError
        As `check`.
    """
    last = stages * chunks - 1
    for work in check(name, stages, batches, chunks).work(stage, stages, batches, chunks):
        at = work.chunk * stages + stage  # the position of the chunk in the model
        backward = not isinstance(work, Forward)
        step = -1 if backward else 1
        if isinstance(work, BackwardWeights):
            yield work
            continue
        if 0 <= at - step <= last:
            yield RecvTensor((at - step) % stages, work.batch, work.chunk, backward)
        yield work
        if 0 <= at + step <= last:
            yield SendTensor((at + step) % stages, work.batch, (at + step) // stages, backward)

"""Train epoch by epoch, and report each epoch."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import pycoll
from pycoll.base.progress_bar import progress_bar

from .data import Data, batches
from .trainers import Trainer


class Epoch(NamedTuple):
    """The results of one epoch."""

    epoch: int
    loss: float
    accuracy: float
    samples_per_second: float
    communication: float  # share of the time that workers spend in calls of the driver
    sent: float  # bytes sent per rank, on average
    sent_most: int  # bytes sent by the busiest rank


def train(trainer: Trainer, training: Data, test: Data, options: argparse.Namespace, first: int = 0) -> Iterator[Epoch]:
    """Train, and yield the results of each epoch; all ranks of the trainer call it."""
    comm = trainer.comm
    for number in range(first, options.epochs):
        todo = batches(len(training.digits), options.batch, number, options.seed)[: options.steps]
        trainer.talking, loss = 0.0, 0.0
        pycoll.barrier(comm=comm)
        start = time.perf_counter()
        with pycoll.traffic() as sent:
            if trainer.share:
                for batch in progress_bar(
                    todo, f"epoch {number + 1}", "step", shown=comm.rank == 0 and sys.stderr.isatty()
                ):
                    loss += trainer.step(training.part(batch)) / len(todo)
            else:
                trainer.serve()
            trainer.finish()
        seconds = time.perf_counter() - start
        about = np.array([loss, seconds * (trainer.share is not None), trainer.talking, sent.nbytes])
        all_ranks = pycoll.allgather(about, comm=comm)
        losses, times, talking, nbytes = all_ranks.T
        accuracy = trainer.model.accuracy(trainer.parameters(), test)
        samples = sum(map(len, todo))
        yield Epoch(
            number + 1,
            float(losses.sum()),
            accuracy,
            samples / times.max(),
            float(talking.sum() / times.sum()),
            float(nbytes.mean()),
            int(nbytes.max()),
        )

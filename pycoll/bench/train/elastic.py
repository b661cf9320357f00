"""Train so that ranks may fail: the others go on."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import elastic

from .data import Data, batches
from .model import Perceptron
from .trainers import DRIVERS, Trainer

RECOVERED = "{failed} failed: {ranks} ranks go on after step {step}, {seconds:.3f} s later, and repeat {repeated}"


class Result(NamedTuple):
    """The result of training.

    Attributes
    ----------
    accuracy
        The accuracy at the end.
    ranks
        The number of ranks at the end.
    recoveries
        What happened after each failure.
    """

    accuracy: float
    ranks: int
    recoveries: list[dict]


class Training:
    """A training function for `pycoll.parallel.elastic`, and the trainer that it uses."""

    trainer: Trainer

    def __init__(self, model: Perceptron, training: Data, test: Data, options: argparse.Namespace) -> None:
        self.model, self.training, self.test, self.options = model, training, test, options
        self.steps = len(batches(len(training.digits), options.batch, 0, options.seed)[: options.steps])

    def make(self, comm: pycoll.Comm) -> tuple:
        """Create the trainer; return its driver and its optimizer."""
        self.trainer = DRIVERS[self.options.driver](self.model, self.options, comm)
        return self.trainer.driver, self.trainer.optimizer

    def train(self, state: elastic.State) -> float:
        """Train from the step of the state to the last epoch; return the accuracy."""
        self.report(state)
        if self.options.save and state.recoveries and state.step % self.steps == 0:
            state.save(epochs=state.step // self.steps)  # the failure may have interrupted this
        while state.step < self.steps * self.options.epochs:
            epoch, done = divmod(state.step, self.steps)
            loss = self.epoch(state, epoch, done)
            if self.options.save:
                state.save(epochs=epoch + 1)
            losses = pycoll.allgather(np.array([loss]), comm=state.comm)
            accuracy = self.model.accuracy(self.trainer.parameters(), self.test)
            if state.comm.rank == 0:
                print(
                    f"epoch {epoch + 1:3}: loss {losses.sum():.6f}, accuracy {accuracy:.2%}, {state.comm.size} ranks",
                    flush=True,
                )
        return self.model.accuracy(self.trainer.parameters(), self.test)

    def epoch(self, state: elastic.State, number: int, done: int) -> float:
        """Train for the rest of an epoch; return the contribution of this rank to the mean loss."""
        todo = batches(len(self.training.digits), self.options.batch, number, self.options.seed)[done : self.steps]
        loss = 0.0
        if self.trainer.share:
            for batch in todo:
                loss += self.trainer.step(self.training.part(batch)) / len(todo)
                state.commit()
        else:
            self.trainer.serve()
        self.trainer.finish()
        return loss

    def report(self, state: elastic.State) -> None:
        """Print where training begins, or goes on."""
        if state.comm.rank:
            return
        if state.recoveries:
            print(RECOVERED.format(**state.recoveries[-1]._asdict()), flush=True)
        elif state.step:
            print(f"going on after step {state.step} with {state.comm.size} ranks", flush=True)


def train_elastic(model: Perceptron, training: Data, test: Data, options: argparse.Namespace) -> tuple[Result, bool]:
    """Train with the driver of the options; return the result, and whether this rank is the first one at the end."""
    job = Training(model, training, test, options)
    size = MPI.COMM_WORLD.size if options.replace else None
    state = elastic.State(job.make, every=options.copy_every, checkpoint=options.save, size=size)
    accuracy = elastic.run(job.train, state)
    recoveries = [recovery._asdict() for recovery in state.recoveries]
    first = state.comm.rank == 0
    if first:
        print(f"accuracy {accuracy:.2%} on {state.comm.size} ranks", flush=True)
    return Result(accuracy, state.comm.size, recoveries), first

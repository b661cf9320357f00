"""One process, the parameter server, DDP and FSDP on the same global batches, side by side."""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
from mpi4py import MPI

import pycoll

from .data import Data, batches
from .model import Arrays, Perceptron
from .trainers import TRAINERS, Trainer

COLUMNS = {  # of a record: heading, number format
    "driver": ("driver", ""),
    "difference": ("difference to one process", ".1e"),
    "loss_difference": ("of the loss", ".1e"),
    "time": ("ms per step", ".2f"),
    "sent": ("MB sent per rank and step", ".3f"),
    "predicted": ("predicted", ".3f"),
    "sent_most": ("busiest rank", ".3f"),
    "predicted_most": ("predicted", ".3f"),
    "state": ("MB of state per rank", ".3f"),
    "peak": ("peak", ".3f"),
}


def compare(model: Perceptron, training: Data, options: argparse.Namespace, comm: MPI.Intracomm) -> list[dict]:
    """A record for each way to train; all ranks of `comm` together, each of which gets them.

    The difference is the largest of a parameter's, relative to the largest parameter.  Times are medians, of the
    slowest rank; state is parameters, gradients and optimizer state of the rank that has most.
    """
    todo = [
        training.part(batch)
        for epoch in range(options.epochs)
        for batch in batches(len(training.digits), options.batch, epoch, options.seed)
    ][: options.steps]
    reference, losses, record = _alone(model, todo, options, comm)
    records = [record]
    for name, make in TRAINERS.items():
        options.driver = name
        trainer = make(model, options, comm)
        found, seconds, sent = _steps(trainer, todo)
        found = pycoll.allreduce(np.array(found), comm=comm)
        parameters = trainer.parameters()
        difference = max(np.abs(parameters[key] - reference[key]).max() for key in reference)
        # in MB: per step
        mine = np.array([sent / len(todo), trainer.predicted(), trainer.state_bytes()]) / 1e6
        trainer.free()
        peak = np.array([_peak(make, model, options, comm, todo)])
        ranks = pycoll.allgather(np.concatenate([mine, peak / 1e6]), comm=comm)
        records.append(
            {
                "driver": f"{name} {options.mode}" if name == "ps" else name,
                "difference": float(difference / max(np.abs(array).max() for array in reference.values())),
                "loss_difference": float(np.abs(found / losses - 1).max()),
                "time": 1e3 * float(np.median(pycoll.allreduce(np.array(seconds), op="max", comm=comm))),
                "sent": ranks[:, 0].mean(),
                "predicted": ranks[:, 1].mean(),
                "sent_most": ranks[:, 0].max(),
                "predicted_most": ranks[:, 1].max(),
                "state": ranks[:, 2].max(),
                "peak": ranks[:, 3].max(),
            }
        )
    return records


def _alone(
    model: Perceptron, todo: list[Data], options: argparse.Namespace, comm: MPI.Intracomm
) -> tuple[Arrays, np.ndarray, dict]:
    """Rank 0's training of the whole batches: parameters and losses on all ranks, and its record."""
    trainer = Trainer(model, options, MPI.COMM_SELF)
    losses, times = np.zeros(len(todo)), [0.0]
    if comm.rank == 0:
        found, times, _ = _steps(trainer, todo)
        losses[:] = found
    wait_quietly(comm)
    for array in trainer.start.values():
        pycoll.bcast(array, comm=comm)
    pycoll.bcast(losses, comm=comm)
    record = dict.fromkeys(COLUMNS, 0.0) | {
        "driver": "one process",
        "time": 1e3 * float(np.median(times)),
        "state": trainer.state_bytes() / 1e6,
    }
    peak = _peak(Trainer, model, options, MPI.COMM_SELF, todo) if comm.rank == 0 else 0
    wait_quietly(comm)
    record["peak"] = peak / 1e6
    return trainer.start, losses, record


def wait_quietly(comm: MPI.Intracomm) -> None:
    """A barrier that leaves the cores to those who still work."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)


def _steps(trainer: Trainer, todo: list[Data]) -> tuple[list[float], list[float], int]:
    """The part of this rank in each step's loss, the seconds of each step, and the bytes sent in all."""
    losses, seconds = [0.0] * len(todo), [0.0] * len(todo)
    with pycoll.traffic() as sent:
        if trainer.share:
            for number, batch in enumerate(todo):
                start = time.perf_counter()
                losses[number] = trainer.step(batch)
                seconds[number] = time.perf_counter() - start
        else:
            trainer.serve()
    trainer.finish()
    return losses, seconds, sent.nbytes


def _peak(make: type, model: Perceptron, options: argparse.Namespace, comm: MPI.Intracomm, todo: list[Data]) -> int:
    """The most bytes that are allocated at a time during two steps, the driver and the model included."""
    tracemalloc.start()
    trainer = make(model, options, comm)
    tracemalloc.reset_peak()
    _steps(trainer, todo[:2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    trainer.free()
    return peak

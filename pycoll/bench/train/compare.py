"""Compare one process, the parameter server, DDP and FSDP on the same global batches."""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.runtime.attach import attach

from ..cores import wait_quietly
from .data import Data, batches
from .model import Arrays, Perceptron
from .trainers import TRAINERS, Trainer

COLUMNS = {  # key of a record -> heading, number format
    "driver": ("driver", ""),
    "difference": ("difference from one process", ".1e"),
    "loss_difference": ("difference of the loss", ".1e"),
    "time": ("ms per step", ".2f"),
    "sent": ("MB sent per rank and step", ".3f"),
    "predicted": ("predicted", ".3f"),
    "sent_most": ("busiest rank", ".3f"),
    "predicted_most": ("predicted", ".3f"),
    "state": ("MB of state per rank", ".3f"),
    "peak": ("peak", ".3f"),
}


def compare(model: Perceptron, training: Data, options: argparse.Namespace, comm: MPI.Intracomm) -> list[dict]:
    """Return one record for one process and one for each driver; all ranks of `comm` call it and get the records.

    The difference is the largest difference of a parameter, relative to the largest parameter.  Times are medians of
    the slowest rank.  State is the size of parameters, gradients and optimizer state on the rank with the most.
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
        # in MB
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
    """Train on rank 0 with the whole batches; return the parameters and losses, on all ranks, and the record."""
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


def _steps(trainer: Trainer, todo: list[Data]) -> tuple[list[float], list[float], int]:
    """Train; return the contribution of this rank to each loss, the seconds of each step, and the total bytes sent."""
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
    """Return the peak of allocated bytes during two steps, including the driver and the model."""
    tracemalloc.start()
    trainer = make(model, options, comm)
    tracemalloc.reset_peak()
    _steps(trainer, todo[:2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if trainer.driver:
        peak += attach(trainer.driver.comm).registered.shared_nbytes
    trainer.free()
    return peak

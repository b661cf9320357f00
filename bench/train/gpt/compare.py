"""Compare all kinds of parallelism with one process, on the same batches."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.base.progress_bar import progress_bar
from pycoll.parallel import Mesh
from pycoll.schedule.pipeline import SCHEDULES

from ..cores import wait_quietly
from .model import Plan
from .sharded import ShardedTrainer
from .text import Text, sequences
from .trainer import SEQUENCES, Trainer
from .weights import Arrays, Size, initial

ALLOWED = 1e-10  # maximum relative difference from one process, in float64
COLUMNS = {  # key of a record -> heading, number format
    "kind": ("parallelism", ""),
    "mesh": ("mesh", ""),
    "difference": ("difference from one process", ".1e"),
    "loss_difference": ("difference of the loss", ".1e"),
    "time": ("ms per step", ".1f"),
    "sent": ("MB sent per rank and step", ".3f"),
    "state": ("MB of state per rank", ".3f"),
}


def kinds(ranks: int, plan: Plan) -> Iterator[tuple[str, dict[str, int], Plan, int]]:
    """Yield each kind of parallelism: its name, the mesh, the plan, and the number of experts."""
    yield "data", {"dp": ranks}, plan, 0
    yield "fully sharded", {"fsdp": ranks}, plan, 0
    yield "tensor", {"tp": ranks}, plan, 0
    yield "tensor, sequence", {"tp": ranks}, plan._replace(sequence=True), 0
    yield "Ulysses attention", {"sp": ranks}, plan._replace(attention="ulysses"), 0
    yield "ring attention", {"sp": ranks}, plan._replace(attention="ring"), 0
    for name in SCHEDULES:
        chunks = 2 if name == "interleaved" else 1
        yield f"pipeline {name}", {"pp": ranks}, plan._replace(pipeline=name, chunks=chunks, micro_batches=ranks), 0
    yield "experts", {"ep": ranks}, plan, ranks
    if ranks % 4 == 0:
        yield "data, tensor", {"dp": ranks // 2, "tp": 2}, plan, 0
    if ranks % 8 == 0:
        axes = {"dp": ranks // 4, "pp": 2, "tp": 2}
        yield "data, pipeline, tensor", axes, plan._replace(micro_batches=2), 0


def compare(options: argparse.Namespace, text: Text, comm: MPI.Intracomm) -> list[dict[str, Any]]:
    """Return a record for one process, without and with experts, and for each kind of parallelism, or for one mesh.

    Times are medians of the slowest rank.  State is the size of parameters and optimizer state on the rank with the
    most.
    """
    records, references = [], {}
    if options.mesh:
        todo = [("the mesh", options.axes, options.plan, options.size.experts)]
    else:
        todo = list(kinds(comm.size, options.plan._replace(micro_batches=1)))
    shown = comm.rank == 0 and sys.stderr.isatty()
    for name, axes, plan, experts in progress_bar(todo, "comparing", "kind", shown=shown):
        size = options.size._replace(experts=experts)
        if experts not in references:
            weights, losses, record = alone(size, options, text, comm)
            references[experts] = weights, losses
            records.append(record)
        weights, losses = references[experts]
        make = ShardedTrainer if "fsdp" in axes else Trainer
        with Mesh(**axes) as mesh:
            trainer = make(initial(size, options.seed, np.dtype(options.dtype)), size, mesh, plan)
            found, seconds, sent = steps(trainer, options, text)
            mine = np.array([trainer.difference(weights), sent, trainer.state_bytes()])
            trainer.free()
        difference, nbytes, state = pycoll.allgather(mine, comm=comm).T
        slowest = pycoll.allreduce(np.array(seconds), op="max", comm=comm)
        records.append(
            {
                "kind": name,
                "mesh": " ".join(f"{axis}={number}" for axis, number in axes.items()),
                "difference": float(difference.max()),
                "loss_difference": float(np.abs(np.array(found) / losses - 1).max()),
                "time": 1e3 * float(np.median(slowest)),
                "sent": float(nbytes.mean()) / len(found) / 1e6,
                "state": float(state.max()) / 1e6,
            }
        )
    return records


def alone(
    size: Size, options: argparse.Namespace, text: Text, comm: MPI.Intracomm
) -> tuple[Arrays, np.ndarray, dict[str, Any]]:
    """Train on rank 0; return the weights and losses, on all ranks, and the record."""
    result = None
    if comm.rank == 0:
        # experts take a limited number of tokens from each rank
        axes = (*SEQUENCES, "tp") if options.plan.sequence else SEQUENCES
        groups = math.prod(options.axes.get(axis, 1) for axis in axes) * options.plan.micro_batches
        plan = options.plan._replace(micro_batches=1, pipeline="1f1b", chunks=1, groups=groups)
        weights = initial(size, options.seed, np.dtype(options.dtype))
        with Mesh(MPI.COMM_SELF, dp=1) as mesh:
            trainer = Trainer(weights, size, mesh, plan)
            losses, seconds, _ = steps(trainer, options, text)
            record = dict.fromkeys(COLUMNS, 0.0) | {
                "kind": "one process, experts" if size.experts else "one process",
                "mesh": "",
                "time": 1e3 * float(np.median(seconds)),
                "state": trainer.state_bytes() / 1e6,
            }
            result = trainer.parameters, np.array(losses), record
            trainer.free()
    wait_quietly(comm)
    found: tuple[Arrays, np.ndarray, dict[str, Any]] = comm.bcast(result)
    return found


def steps(trainer: Trainer, options: argparse.Namespace, text: Text) -> tuple[list[float], list[float], int]:
    """Train; return the loss and the seconds of each step, and the bytes sent."""
    losses, seconds = [], []
    with pycoll.traffic() as sent:
        for step in range(options.steps):
            batch = sequences(text.training, options.batch, options.size.length, (options.seed, step))
            start = time.perf_counter()
            losses.append(trainer.step(*batch))
            seconds.append(time.perf_counter() - start)
    return losses, seconds, sent.nbytes

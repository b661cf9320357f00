"""Train a GPT and report, or compare all kinds of parallelism with one process."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.base.command_line import printed_once, say_written
from pycoll.base.files import write_json
from pycoll.base.progress_bar import progress_bar
from pycoll.parallel import Mesh
from pycoll.tune.environment import environment

from ...results import table
from ..cores import share_cores
from .compare import ALLOWED, COLUMNS, compare
from .options import parse
from .sharded import ShardedTrainer
from .text import Text, sequences, standard_library
from .trainer import Trainer
from .weights import initial

LINE = (
    "step {step:4}: loss {loss:.3f}, held out {held_out:.3f}, {tokens_per_second:.0f} characters/s, "
    "{state:.2f} MB of state on the rank with the most, MB sent per rank and step: {along}"
)


def main(argv: list[str]) -> int:
    """Train or compare; return 1 if a comparison finds a difference from one process."""
    comm = MPI.COMM_WORLD
    with printed_once(comm):
        options = parse(argv, comm.size)
    where = environment(comm)
    share_cores(comm)
    text = standard_library()
    if options.compare:
        records = compare(options, text, comm)
        if comm.rank == 0:
            if options.json:
                write_json(options.json, document(options, where, records))
            print(table(records, COLUMNS))
            say_written(options.json)
        wrong = max(max(record["difference"], record["loss_difference"]) for record in records) > ALLOWED
        return int(options.dtype == "float64" and wrong)
    records = []
    for record in train(options, text, comm):
        records.append(record)
        if comm.rank == 0:
            along = ", ".join(f"{axis} {sent:.3f}" for axis, sent in record["sent"].items())
            print(LINE.format(**record, along=along or "nothing"), flush=True)
    if comm.rank == 0 and options.json:
        write_json(options.json, document(options, where, records))
        say_written(options.json)
    return 0


def document(options: argparse.Namespace, where: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of the JSON file."""
    given = vars(options) | {"size": options.size._asdict(), "plan": options.plan._asdict()}
    return {"environment": where, "options": given, "records": records}


def train(options: argparse.Namespace, text: Text, comm: MPI.Intracomm) -> Any:
    """Train, and yield a record after some steps; all ranks call it."""
    kind = ShardedTrainer if "fsdp" in options.axes else Trainer
    weights = initial(options.size, options.seed, np.dtype(options.dtype))
    with Mesh(**options.axes) as mesh:
        trainer = kind(weights, options.size, mesh, options.plan)
        if options.resume:
            trainer.load(options.resume)
        with trainer.meter.counting():
            yield from reports(trainer, options, text, comm)
        trainer.free()


def reports(trainer: Trainer, options: argparse.Namespace, text: Text, comm: MPI.Intracomm) -> Any:
    """Train, and yield a record after some steps."""
    length, last = options.size.length, min(options.stop or options.steps, options.steps)
    losses: list[float] = []
    start, shown = time.perf_counter(), comm.rank == 0 and sys.stderr.isatty()
    for step in progress_bar(range(trainer.done, last), "training", "step", shown=shown):
        losses.append(trainer.step(*sequences(text.training, options.batch, length, (options.seed, step))))
        if (step + 1) % options.every and step + 1 < last:
            continue
        seconds = time.perf_counter() - start
        if options.save:
            trainer.save(options.save)
        state, times = pycoll.allgather(np.array([trainer.state_bytes(), seconds]), comm=comm).T
        sent = sent_along(trainer, len(losses), comm)
        yield {
            "step": step + 1,
            "loss": float(np.mean(losses)),
            "held_out": trainer.measure(*sequences(text.held_out, options.batch, length, (0,))),
            "tokens_per_second": options.batch * length * len(losses) / float(times.max()),
            "sent": sent,
            "state": float(state.max()) / 1e6,
        }
        trainer.meter.sent.clear()
        losses, start = [], time.perf_counter()


def sent_along(trainer: Trainer, steps: int, comm: MPI.Intracomm) -> dict[str, float]:
    """Return the megabytes that a rank has sent along each axis in a step, on average over the ranks."""
    axes = sorted(set().union(*comm.allgather(list(trainer.meter.sent))))
    mine = np.array([trainer.meter.sent[axis] for axis in axes], float)
    total = pycoll.allreduce(mine, comm=comm) / comm.size / steps / 1e6
    return {axis: float(sent) for axis, sent in zip(axes, total, strict=True) if sent}

"""Measure the bubble of pipelines: ``mpiexec -n 4 python -m pycoll.bench.train.bubble``, best on several hosts.

Each stage sleeps instead of computing: a time for a forward pass, and twice that time for a backward pass.  So the
result does not depend on the number of cores.  The bubble is the share of the time in which a stage does not sleep,
on average over the stages.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from tabulate import tabulate

import pycoll
from pycoll.base.command_line import Parser, printed_once
from pycoll.parallel import Pipeline
from pycoll.schedule.pipeline import SCHEDULES
from pycoll.tune.environment import environment

from ..results import write_results


class Sleeper:
    """A chunk of a model that sleeps."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.slept = seconds, 0.0

    def sleep(self, seconds: float) -> None:
        """Sleep, and count the time, which may be longer."""
        start = time.perf_counter()
        time.sleep(seconds)
        self.slept += time.perf_counter() - start

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, None]:
        """Take the time of a forward pass."""
        self.sleep(self.seconds)
        return x, None

    def backward(self, dy: np.ndarray, saved: Any) -> np.ndarray:
        """Take the time of a backward pass."""
        self.sleep(2 * self.seconds)
        return dy

    def backward_input(self, dy: np.ndarray, saved: Any) -> tuple[np.ndarray, Any]:
        """Take half of the time of a backward pass, and the other half later."""
        self.sleep(self.seconds)
        return dy, lambda: self.sleep(self.seconds)


def measure(name: str, options: argparse.Namespace, comm: MPI.Intracomm) -> float:
    """Return the bubble of a schedule, the median of several steps."""
    chunks = [Sleeper(1e-3 * options.ms / count) for count in [chunks_of(name)] for _ in range(count)]
    batch = np.zeros((options.micro_batches, options.activation_kb * 128))
    loss = lambda y, targets: (0.0, y)  # noqa: E731
    pipeline = Pipeline(chunks, loss, comm=comm, schedule=name, micro_batches=options.micro_batches)
    bubbles = []
    for _ in range(options.rounds + 1):  # the first step warms up
        before = sum(chunk.slept for chunk in chunks)
        pycoll.barrier(comm=comm)
        start = time.perf_counter()
        pipeline.step(batch, batch)
        total = time.perf_counter() - start
        slept = sum(chunk.slept for chunk in chunks) - before
        busy, total = (
            pycoll.allreduce(np.array([value]), op=op, comm=comm)[0] for value, op in ((slept, "sum"), (total, "max"))
        )
        bubbles.append(1 - busy / (comm.size * total))
    pipeline.free()
    return float(np.median(bubbles[1:]))


def chunks_of(name: str) -> int:
    """Return the number of chunks of each stage."""
    return 2 if name == "interleaved" else 1


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    show = argparse.ArgumentDefaultsHelpFormatter
    parser = Parser("python -m pycoll.bench.train.bubble", description=__doc__, formatter_class=show)
    parser.add_argument("-m", "--micro-batches", type=int, default=8, help="number of micro-batches")
    parser.add_argument("--ms", type=float, default=30.0, help="time of a forward pass, in milliseconds")
    parser.add_argument("--activation-kb", type=int, default=64, metavar="KIB", help="size of an activation")
    parser.add_argument("--rounds", type=int, default=7, help="number of measurements of each schedule")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parser.parse_args(argv)
        if options.micro_batches % comm.size:
            parser.error(f"-m {options.micro_batches} is not a multiple of the number of ranks, {comm.size}")
    where = environment(comm)
    records = []
    for name, schedule in SCHEDULES.items():
        formula = schedule.bubble(comm.size, options.micro_batches, chunks_of(name))
        records.append({"schedule": name, "measured": measure(name, options, comm), "formula": formula})
    if comm.rank == 0:
        write_results(options.json, {"environment": where, "options": vars(options), "records": records})
        print("  ".join(f"{key}: {value}" for key, value in where.items()))
        print(
            tabulate([list(record.values()) for record in records], ["schedule", "bubble", "formula"], floatfmt=".3f")
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

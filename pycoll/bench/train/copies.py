"""Time elastic training while no rank fails: ``mpiexec -n 2 python -m pycoll.bench.train.copies --driver fsdp``.

The same steps run alternately without and with `pycoll.parallel.elastic`, with copies of shards after each of `--every`
steps.  Other options are those of ``python -m pycoll.bench.train``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.base.command_line import Parser, printed_once
from pycoll.parallel import elastic
from pycoll.tune.environment import environment

from ..cores import share_cores
from ..results import table, write_results
from .__main__ import parse as parse_training
from .data import CLASSES, Data, synthetic
from .model import Perceptron
from .trainers import DRIVERS, Trainer

COLUMNS = {
    "way": ("", ""),
    "time": ("ms per step", ".3f"),
    "cost": ("cost", ".1%"),
    "least": ("from", ".1%"),
    "most": ("to", ".1%"),
}


class Way:
    """A way to train, whose steps are timed in blocks."""

    def __init__(self, trainer: Trainer, state: elastic.State | None = None) -> None:
        self._trainer, self._state = trainer, state
        self.times: list[float] = []

    def run(self, data: Data, steps: int) -> None:
        """Run a block of steps, and note the time per step of the slowest rank."""
        comm = MPI.COMM_WORLD
        comm.Barrier()
        start = time.perf_counter()
        if self._trainer.share:
            for _ in range(steps):
                self._trainer.step(data)
                if self._state:
                    self._state.commit()
        else:
            self._trainer.serve()
        self._trainer.finish()
        self.times.append(comm.allreduce(time.perf_counter() - start, MPI.MAX) / steps)


def parse(argv: list[str]) -> tuple[argparse.Namespace, argparse.Namespace]:
    """Parse the command line; return the options, and those of training."""
    parser = Parser(prog="python -m pycoll.bench.train.copies", description=__doc__)
    parser.add_argument("--every", type=int, nargs="+", default=[1, 8], help="steps between copies (1 8)")
    parser.add_argument("--block", type=int, default=16, help="steps in a block (%(default)s)")
    parser.add_argument("--blocks", type=int, default=31, help="number of blocks of each way (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    options, others = parser.parse_known_args(argv)
    return options, parse_training(others)


def main(argv: list[str]) -> int:
    """Time all ways alternately, and print the medians."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options, training = parse(argv)
    share_cores(comm)
    features = training.hidden
    model = Perceptron([features, *[training.hidden] * training.layers, CLASSES])
    data = synthetic(np.dtype(training.dtype), training.batch, features)[0]
    ways = {"without": Way(DRIVERS[training.driver](model, training, comm))}
    ways |= {f"copies every {every} steps": elastic_way(model, training, every) for every in options.every}
    for _ in range(options.blocks + 1):
        for way in ways.values():
            way.run(data, options.block)
    records = [record(name, way.times[1:], ways["without"].times[1:]) for name, way in ways.items()]
    where = environment(comm)
    if comm.rank == 0:
        print(table(records, COLUMNS))
        settings = vars(options) | {"training": vars(training)}
        write_results(options.json, {"environment": where, "options": settings, "records": records})
    return 0


def elastic_way(model: Perceptron, options: argparse.Namespace, every: int) -> Way:
    """Return a way with a state."""
    trainers: list[Trainer] = []

    def make(comm: pycoll.Comm) -> tuple:
        trainers.append(DRIVERS[options.driver](model, options, comm))
        return trainers[0].driver, trainers[0].optimizer

    state = elastic.State(make, every=every)
    state.begin()
    return Way(trainers[0], state)


def record(name: str, times: list[float], without: list[float]) -> dict:
    """Return the median time of a step, and the median of the costs, with its quartiles."""
    costs = [time / other - 1 for time, other in zip(times, without)]
    least, cost, most = statistics.quantiles(costs, n=4)
    return {"way": name, "time": 1e3 * statistics.median(times), "cost": cost, "least": least, "most": most}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

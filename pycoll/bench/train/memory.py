"""Measure memory during a training step: ``mpiexec -n 4 python -m pycoll.bench.train.memory``.

The same step runs with DDP, with FSDP that keeps gathered units, and with FSDP that drops them.  Before each pass of a
layer, and after the step, each rank counts the bytes that it has allocated: the arrays of NumPy, by tracemalloc, and
registered memory.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from tabulate import tabulate

import pycoll
from pycoll.base.command_line import Parser, check_folder, in_words, optional, printed_once, say_written
from pycoll.base.files import write_atomically
from pycoll.parallel import Adam, DistributedDataParallel, FullyShardedDataParallel
from pycoll.runtime.attach import attach
from pycoll.tune.environment import environment

from ..results import write_results
from .model import Arrays

MIB = 1 << 20
DDP, KEPT, DROPPED = "DDP", "FSDP, units kept", "FSDP, units dropped"
DRIVERS: dict[str, Any] = {
    DDP: DistributedDataParallel,
    KEPT: partial(FullyShardedDataParallel, reshard_after_forward=False),
    DROPPED: FullyShardedDataParallel,
}


class MeasuredStep:
    """A training step of a network with equal layers; a layer is a unit of FSDP."""

    def __init__(self, driver: str, options: argparse.Namespace, comm: MPI.Intracomm) -> None:
        self.width, self.samples = options.width, options.samples
        self.names = [f"layer{layer}.weight" for layer in range(options.layers)]
        shape = self.width, self.width
        self.driver = DRIVERS[driver]({name: np.full(shape, 1e-3, np.float32) for name in self.names}, comm=comm)
        sharded = driver != DDP
        self.optimizer = Adam(self.driver.shards if sharded else self.driver.parameters)
        self.forward, self.backward = self.replica, self.replica
        if sharded:
            self.forward, self.backward = self.driver.forward, self.driver.backward
        self.nbytes: list[int] = []

    def replica(self, layer: int) -> contextlib.AbstractContextManager[Arrays]:
        """Return the parameters of DDP, which has all of them at any time."""
        return contextlib.nullcontext(self.driver.parameters)

    def run(self) -> None:
        """Run the forward pass, the backward pass and the optimizer; count before each pass of a layer."""
        values = [np.ones((self.samples, self.width), np.float32)]
        for layer, name in enumerate(self.names):
            with self.forward(layer) as parameters:
                self.count()
                values.append(np.tanh(values[-1] @ parameters[name]))
        error = np.ones_like(values[-1])
        for layer, name in reversed([*enumerate(self.names)]):
            with self.backward(layer) as parameters:
                self.count()
                error *= 1 - np.square(values.pop())
                self.driver.ready(name, values[-1].T @ error)
                error = error @ parameters[name].T
        self.optimizer.step(self.driver.synchronize())
        del values, error
        self.count()

    def count(self) -> None:
        """Count the allocated bytes of this rank."""
        self.nbytes.append(tracemalloc.get_traced_memory()[0] + attach(self.driver.comm).registered.shared_nbytes)


def measure(driver: str, options: argparse.Namespace, comm: MPI.Intracomm) -> list[float]:
    """Return the allocated MiB of the rank with the most, at each point of a step."""
    warm_up = MeasuredStep(driver, options, comm)  # imports what is imported lazily, which would count otherwise
    warm_up.run()
    warm_up.driver.free()
    tracemalloc.start()
    step = MeasuredStep(driver, options, comm)
    step.run()  # creates the state of the optimizer
    step.nbytes.clear()
    step.run()
    tracemalloc.stop()
    step.driver.free()
    return [nbytes / MIB for nbytes in pycoll.allreduce(np.array(step.nbytes), op="max", comm=comm)]


def model_state(driver: str, options: argparse.Namespace, ranks: int) -> float:
    """Return the MiB of parameters, gradients and two moments by formula.

    FSDP also has buffers for gathered units, and for the gradients of two units.
    """
    unit: float = 4 * options.width**2 / MIB
    whole: float = options.layers * unit
    if driver == DDP:
        return 4 * whole
    two = min(2, options.layers) * unit
    return 4 * whole / ranks + (whole if driver == KEPT else two) + two


def draw(records: list[dict[str, Any]], options: argparse.Namespace, ranks: int, path: Path) -> None:
    """Write the plot."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from pycoll.base.figures import BLUE, GREY, ORANGE, STYLE, image

    with rc_context(STYLE):
        figure = Figure(figsize=(7, 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for record, color in zip(records, (GREY, ORANGE, BLUE)):
            curve = record["nbytes"]
            axes.plot(curve, color=color, linewidth=2)
            axes.axhline(record["formula"], color=color, linewidth=1, linestyle="dotted")
            end = 2 * options.layers, curve[-1]
            axes.annotate(record["driver"], end, (6, 0), textcoords="offset points", color=color, va="center")
        axes.set(xlim=(0, 2 * options.layers), ylim=(0, None), ylabel="allocated (MiB)")
        axes.set_xticks([options.layers / 2, options.layers * 3 / 2], ["forward pass", "backward pass"])
        axes.tick_params(bottom=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(
            f"{ranks} ranks, {options.layers} layers of {4 * options.width**2 / MIB:g} MiB, Adam", loc="left"
        )
    write_atomically(path, lambda file: file.write(image(figure, path.suffix[1:])))


def parse(argv: list[str], comm: MPI.Intracomm) -> argparse.Namespace:
    """Parse the command line; errors end the program."""
    show = argparse.ArgumentDefaultsHelpFormatter
    parser = Parser("python -m pycoll.bench.train.memory", description=__doc__, formatter_class=show)
    parser.add_argument("--layers", type=int, default=16, help="number of layers")
    parser.add_argument("--width", type=int, default=512, help="width of the layers")
    parser.add_argument("--samples", type=int, default=256, help="samples in the batch of a rank")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.add_argument("-o", "--output", metavar="FILE", help="also draw the memory in FILE (svg, png, pdf)")
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            if min(options.layers, options.width, options.samples) < 1:
                raise ValueError("--layers, --width and --samples must be positive")
            if options.output:
                check_folder("-o", Path(options.output), ".svg", ".png", ".pdf")
                optional("matplotlib")
        except ValueError as error:
            parser.error(in_words(error))
    return options


def main(argv: list[str]) -> int:
    """Measure, print a table, and draw."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    options = parse(argv, comm)
    where = environment(comm)
    records: list[dict[str, Any]] = [
        {"driver": name, "formula": model_state(name, options, comm.size), "nbytes": measure(name, options, comm)}
        for name in DRIVERS
    ]
    if comm.rank == 0:
        write_results(options.json, {"environment": where, "options": vars(options), "records": records})
        if options.output:
            draw(records, options, comm.size, Path(options.output))
        rows = [[each["driver"], each["formula"], each["nbytes"][-1], max(each["nbytes"])] for each in records]
        headings = ["MiB", "formula", "after the step", "at most"]
        print(tabulate(rows, headings, floatfmt=".0f"))
        say_written(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

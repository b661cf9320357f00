"""Measure the gain from overlap: ``mpiexec -n 4 python -m pycoll.bench.train.overlap``, best on several hosts.

The same training step runs with `DistributedDataParallel` alternately in three ways.  The gradients are averaged
after the backward pass, during the backward pass by its calls to `ready` only, or also by the progress thread.  The
batch size is chosen so that the backward pass takes about as long as the averaging.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from mpi4py import MPI
from tabulate import tabulate
from threadpoolctl import threadpool_limits

import pycoll
from pycoll.base.command_line import Parser, printed_once
from pycoll.parallel import DistributedDataParallel
from pycoll.tune.environment import environment

from ..results import write_results
from .data import CLASSES, Data, synthetic
from .model import Perceptron

T = TypeVar("T")
SMALLEST, LARGEST = 16, 1 << 16  # samples in the batch of a rank


class OverlapStep:
    """A training step of one rank, without the update."""

    def __init__(self, options: argparse.Namespace, comm: MPI.Intracomm) -> None:
        self.model = Perceptron([*[options.hidden] * (options.layers + 1), CLASSES])
        self.parameters = self.model.initial(1, np.dtype(np.float32))
        bucket = options.bucket_kb << 10
        self.ddp = DistributedDataParallel(self.parameters, comm=comm, bucket_bytes=bucket, first_bucket_bytes=bucket)
        self._width = options.hidden
        self.resize(SMALLEST)

    def resize(self, samples: int) -> None:
        """Use a batch with this number of samples."""
        self.batch: Data = synthetic(np.dtype(np.float32), samples, self._width)[0]

    def forward(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Run the forward pass; return the inputs of the layers, and the gradient of the output."""
        inputs, values = [], self.batch.images
        for layer in self.model.layers:
            inputs.append(values)
            values = self.model.forward(layer, self.parameters, values)
        return inputs, self.model.loss(values, self.batch.digits)[1]

    def backward(self, inputs: list[np.ndarray], error: np.ndarray, ready: Callable[[str, np.ndarray], object]) -> None:
        """Run the backward pass; call `ready` with each gradient, the last layer first."""
        for layer in reversed(self.model.layers):
            for name, gradient in self.model.backward(layer, self.parameters, inputs[layer], error):
                ready(name, gradient)
            error = self.model.through(layer, self.parameters, inputs[layer], error)

    def apart(self, inputs: list[np.ndarray], error: np.ndarray) -> None:
        """Compute all gradients, and then average them."""
        gradients: dict[str, np.ndarray] = {}
        self.backward(inputs, error, gradients.__setitem__)
        for name, gradient in gradients.items():
            self.ddp.ready(name, gradient)
        self.ddp.synchronize()

    def overlapped(self, inputs: list[np.ndarray], error: np.ndarray) -> None:
        """Average the gradients during the backward pass."""
        self.backward(inputs, error, self.ddp.ready)
        self.ddp.synchronize()

    def averaging(self) -> None:
        """Average without computing."""
        self.ddp.average_gradients(self.parameters)


def timed(comm: MPI.Intracomm, call: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that a call takes on the slowest rank, and its result."""
    comm.Barrier()
    start = time.perf_counter()
    result = call()
    return float(pycoll.allreduce(np.array([time.perf_counter() - start]), op="max", comm=comm)[0]), result


def calibrate(step: OverlapStep, comm: MPI.Intracomm) -> tuple[float, float, float]:
    """Choose the batch size; return the seconds of the forward pass, the backward pass, and the averaging."""
    averaging = np.median([timed(comm, step.averaging)[0] for _ in range(5)])

    def times() -> tuple[float, float]:
        passes = []
        for _ in range(3):
            first, kept = timed(comm, step.forward)
            second, _ = timed(comm, partial(step.backward, *kept, lambda name, gradient: None))
            passes.append((first, second))
        forward, backward = np.median(passes, axis=0)
        return float(forward), float(backward)

    samples = SMALLEST
    while times()[1] < averaging and samples < LARGEST:
        samples = max(samples + 16, int(samples * 1.15))
        step.resize(samples)
    return *times(), float(averaging)


def measure(step: OverlapStep, comm: MPI.Intracomm, rounds: int) -> dict[str, np.ndarray]:
    """Return the median seconds of the forward pass, and of the rest, on the slowest rank for each way."""
    ways = {"apart": step.apart, "hooks alone": step.overlapped}
    threaded = MPI.Query_thread() == MPI.THREAD_MULTIPLE
    times: dict[str, list[tuple[float, float]]] = {
        name: [] for name in (*ways, *(["progress thread"] if threaded else []))
    }
    for _ in range(rounds):
        for name in times:
            with pycoll.progress_thread() if name == "progress thread" else contextlib.nullcontext():
                first, kept = timed(comm, step.forward)
                times[name].append((first, timed(comm, partial(ways.get(name, step.overlapped), *kept))[0]))
    return {name: np.median(seconds, axis=0) for name, seconds in times.items()}


def main(argv: list[str]) -> int:
    """Measure, and print a table."""
    show = argparse.ArgumentDefaultsHelpFormatter
    parser = Parser("python -m pycoll.bench.train.overlap", description=__doc__, formatter_class=show)
    parser.add_argument("--hidden", type=int, default=256, help="width of the layers")
    parser.add_argument("--layers", type=int, default=16, help="number of hidden layers")
    parser.add_argument("--bucket-kb", type=int, default=256, metavar="KIB", help="size of a bucket")
    parser.add_argument("--rounds", type=int, default=7, help="number of measurements of each way")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parser.parse_args(argv)
    threadpool_limits(1)
    where = environment(comm)
    step = OverlapStep(options, comm)
    forward, backward, averaging = calibrate(step, comm)
    times = measure(step, comm, options.rounds)
    step.ddp.free()
    if comm.rank != 0:
        return 0
    nbytes = sum(array.nbytes for array in step.parameters.values())
    rows = [
        {
            "averaging": name,
            "step": 1e3 * seconds.sum(),
            "speedup": times["apart"].sum() / seconds.sum(),
            "backward": 1e3 * seconds[1],
            "backward speedup": times["apart"][1] / seconds[1],
        }
        for name, seconds in times.items()
    ]
    record = {
        "bytes": nbytes,
        "samples": len(step.batch.digits),
        "forward": forward,
        "backward": backward,
        "averaging": averaging,
        "ways": rows,
    }
    write_results(options.json, {"environment": where, "options": vars(options), "record": record})
    print("  ".join(f"{key}: {value}" for key, value in where.items()))
    print(
        f"{nbytes / 1e6:.2f} MB of gradients, {record['samples']} samples per rank; without overlap: forward pass ",
        end="",
    )
    print(f"{1e3 * forward:.0f} ms, backward pass {1e3 * backward:.0f} ms, averaging {1e3 * averaging:.0f} ms")
    headings = ["averaging", "ms per step", "speedup", "without the forward pass", "speedup"]
    print(tabulate([list(row.values()) for row in rows], headings, floatfmt=["", ".1f", ".2f", ".1f", ".2f"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Trains a small NumPy multilayer perceptron on handwritten digits, data-parallel.

``mpiexec -n 4 python -m bench.train``: every rank works on its share of each global batch, gradients are
averaged with pycoll's ring all-reduce, and the losses are compared with those of one rank on its own.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits
from tabulate import tabulate

import pycoll


class Data(NamedTuple):
    """Images as rows of 64 numbers in 0..1, and the digits they show."""

    images: np.ndarray
    digits: np.ndarray


def load(test_share: float = 0.2) -> tuple[Data, Data]:
    """The digits that scikit-learn ships, shuffled alike on all ranks: training and test data."""
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    images, digits = images[order] / 16.0, digits[order]
    cut = int(len(digits) * (1 - test_share))
    return Data(images[:cut], digits[:cut]), Data(images[cut:], digits[cut:])


class Perceptron:
    """Two hidden layers with ReLU and a softmax; all parameters are views into one flat vector."""

    def __init__(self, widths: list[int], seed: int) -> None:
        shapes = [shape for a, b in itertools.pairwise(widths) for shape in ((a, b), (b,))]
        self.flat = np.zeros(sum(map(np.prod, shapes)))
        self.gradient = np.zeros_like(self.flat)
        self.parameters, self.gradients = self._views(self.flat, shapes), self._views(self.gradient, shapes)
        random = np.random.default_rng(seed)
        for weights in self.parameters[::2]:
            weights[...] = random.normal(0.0, np.sqrt(2.0 / len(weights)), weights.shape)

    @staticmethod
    def _views(flat: np.ndarray, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        return [piece.reshape(shape) for piece, shape in zip(np.split(flat, ends[:-1]), shapes)]

    def layers(self, images: np.ndarray) -> list[np.ndarray]:
        """The values of all layers, the last one as probabilities of the digits."""
        values = [images]
        for weights, bias in zip(self.parameters[:-2:2], self.parameters[1:-2:2]):
            values.append(np.maximum(values[-1] @ weights + bias, 0.0))
        scores = values[-1] @ self.parameters[-2] + self.parameters[-1]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        values.append(scores / scores.sum(axis=1, keepdims=True))
        return values

    def backward(self, batch: Data, weight: float) -> float:
        """Put the gradient of `weight` times the summed loss into `gradient`; return that loss."""
        values = self.layers(batch.images)
        rows = np.arange(len(batch.digits))
        loss = -np.log(values[-1][rows, batch.digits]).sum() * weight
        error = values[-1].copy()
        error[rows, batch.digits] -= 1.0
        error *= weight
        for layer in range(len(values) - 2, -1, -1):
            np.matmul(values[layer].T, error, out=self.gradients[2 * layer])
            np.sum(error, axis=0, out=self.gradients[2 * layer + 1])
            error = error @ self.parameters[2 * layer].T * (values[layer] > 0)
        return loss

    def accuracy(self, data: Data) -> float:
        """The share of digits that are recognised."""
        return float((self.layers(data.images)[-1].argmax(axis=1) == data.digits).mean())


class Epoch(NamedTuple):
    """What one epoch gave."""

    loss: float
    accuracy: float
    samples_per_second: float
    communication: float


def train(comm: MPI.Intracomm, options: argparse.Namespace) -> list[Epoch]:
    """Train on the ranks of `comm`; every rank returns the same epochs but for the times."""
    training, test = load()
    model = Perceptron([64, options.hidden, options.hidden, 10], options.seed)
    average, velocity = np.empty_like(model.flat), np.zeros_like(model.flat)
    random = np.random.default_rng(options.seed)
    epochs = []
    for _ in range(options.epochs):
        order = random.permutation(len(training.digits))
        batches = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]
        start, talking, losses = time.perf_counter(), 0.0, np.zeros(1)
        for batch in batches:
            mine = batch[comm.rank :: comm.size]
            # weighted so that the mean over the ranks is the mean over the batch, however it was shared
            share = Data(training.images[mine], training.digits[mine])
            losses += model.backward(share, comm.size / len(batch)) / len(batches)
            before = time.perf_counter()
            pycoll.allreduce(model.gradient, average, op=pycoll.AVG, comm=comm, algorithm="ring")
            talking += time.perf_counter() - before
            velocity *= options.momentum
            velocity += average
            model.flat -= options.rate * velocity
        seconds = time.perf_counter() - start
        loss = pycoll.allreduce(losses, op=pycoll.AVG, comm=comm)[0]
        epochs.append(Epoch(loss, model.accuracy(test), len(order) / seconds, talking / seconds))
    return epochs


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.train", description=__doc__)
    parser.add_argument("--epochs", type=int, default=20, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="samples in a global batch (%(default)s)")
    parser.add_argument("--hidden", type=int, default=64, help="width of the hidden layers (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--momentum", type=float, default=0.9, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Train together, then alone; 1 unless the losses agree and the digits are recognised."""
    pycoll.abort_on_exception()
    options, comm = parse(argv), MPI.COMM_WORLD
    epochs = train(comm, options)
    if comm.rank != 0:
        return 0
    rows = [[i, *epoch[:3], 100 * epoch.communication] for i, epoch in enumerate(epochs, 1)]
    headers = ["epoch", "loss", "test accuracy", "samples/s", "communication (%)"]
    print(tabulate(rows, headers, floatfmt=["", ".6f", ".4f", ".0f", ".1f"]))
    alone = train(MPI.COMM_SELF, options)
    difference = max(abs(a.loss - b.loss) / b.loss for a, b in zip(epochs, alone))
    print(f"largest relative difference of the losses to those of one rank: {difference:.1e} (allowed: 1e-10)")
    print(f"test accuracy: {epochs[-1].accuracy:.2%} (wanted: 95 %)")
    return int(difference > 1e-10 or epochs[-1].accuracy < 0.95)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

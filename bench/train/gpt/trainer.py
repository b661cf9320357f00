"""Training steps of a model on a mesh of ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import AdamW, Mesh, average_gradients, vocabulary_parallel_cross_entropy

from .layers import named
from .model import ATTENTION, along, chunks_of
from .weights import Array, Arrays, Size

REPLICAS = ("dp", "fsdp", "ep")  # the axes along which ranks have different sequences


class Plan(NamedTuple):
    """How a model is trained."""

    attention: str = "ulysses"  # how attention works with a divided sequence: ulysses or ring
    sequence: bool = False  # divide activations between the layers of tensor parallelism too
    pipeline: str = "1f1b"
    chunks: int = 1  # of the model on each rank, for the interleaved pipeline
    micro_batches: int = 1
    rate: float = 1e-3
    warmup: int = 20
    steps: int = 1000


class Trainer:
    """Trains the part of the model that this rank has."""

    def __init__(self, weights: Arrays, size: Size, mesh: Mesh, plan: Plan) -> None:
        self.size, self.mesh, self.plan = size, mesh, plan
        self.done = 0
        self.tp, self.replicas = along(mesh, "tp"), along(mesh, *REPLICAS)
        self.chunks = chunks_of(weights, size, mesh, plan.chunks, plan.attention, plan.sequence)
        self.layers = {name: (layer, key) for chunk in self.chunks for name, layer, key in named(chunk)}
        self.places = ATTENTION[plan.attention](along(mesh, "sp")).positions(size.length)
        self.prepare()

    def prepare(self) -> None:
        """Create the optimizer."""
        self.parameters: Arrays = {name: layer.parameters[key] for name, (layer, key) in self.layers.items()}
        self.gradients: Arrays = {name: layer.gradients[key] for name, (layer, key) in self.layers.items()}
        self.optimizer = AdamW(self.parameters, lr=self.plan.rate)
        stages = along(self.mesh, "pp")
        self.ends = stages.Split(int(0 < stages.rank < stages.size - 1))  # the first and the last stage

    def step(self, inputs: Array, targets: Array) -> float:
        """Train on a global batch of shape (sequences, positions); return the mean loss."""
        loss = self.learn(inputs, targets)
        self.optimizer.lr = self.rate()
        self.optimizer.step(self.average())
        self.done += 1
        for layer, key in self.layers.values():
            layer.gradients[key][...] = 0
        return loss

    def rate(self) -> float:
        """Return the learning rate: a linear warm-up, and half a cosine down to a tenth."""
        plan = self.plan
        warm = min(1.0, (self.done + 1) / plan.warmup)
        return plan.rate * warm * (0.55 + 0.45 * float(np.cos(np.pi * min(1.0, self.done / plan.steps))))

    def learn(self, inputs: Array, targets: Array) -> float:
        """Run forward and backward passes; return the mean loss of the whole batch."""
        total, count = 0.0, self.plan.micro_batches
        for x, wanted in zip(self.micro_batches(inputs), self.micro_batches(targets), strict=True):
            total += self.through(x, lambda y, wanted=wanted: self.loss(y, wanted)) / count
        everyone = along(self.mesh, *REPLICAS, "sp")
        return float(pycoll.allreduce(np.array([total]), comm=everyone)[0]) / everyone.size

    def micro_batches(self, batch: Array) -> list[Array]:
        """Return the sequences of this rank, in micro-batches, with the positions of this rank."""
        parts = self.replicas.size * self.plan.micro_batches
        if len(batch) % parts:
            raise ValueError(
                f"{len(batch)} sequences cannot be divided over {self.replicas.size} ranks with "
                f"{self.plan.micro_batches} micro-batches each; change the batch to a multiple of {parts}"
            )
        mine = np.split(batch, self.replicas.size)[self.replicas.rank][:, self.places]
        return np.split(mine, self.plan.micro_batches)

    def loss(self, y: Array, targets: Array) -> tuple[float, Array]:
        """Return the mean loss of a micro-batch, and its gradient, as a part of that of the batch."""
        loss, gradient = vocabulary_parallel_cross_entropy(y, targets.reshape(-1), self.tp)
        return loss, gradient / self.plan.micro_batches

    def through(self, x: Array, loss: Any) -> float:
        """Run a forward and a backward pass; return the loss."""
        (model,) = self.chunks
        y, saved = model.forward(x)
        value, dy = loss(y)
        model.backward(dy, saved)
        return float(value)

    def average(self) -> Arrays:
        """Return the gradients, added and averaged over the ranks that have the same parameters."""
        if self.plan.sequence and self.tp.size > 1:
            by_rows = [name for name, (layer, _) in self.layers.items() if hasattr(layer, "by_rows")]
            add({name: self.gradients[name] for name in by_rows}, self.tp)
        if self.ends.size == 2:  # both have the table, for tokens and for logits
            add({"embedding.table": self.gradients["embedding.table"]}, self.ends)
        average_gradients(self.gradients, comm=along(self.mesh, *REPLICAS, "sp"))
        return self.gradients

    def state_bytes(self) -> int:
        """Return the size of the parameters and of the state of the optimizer."""
        arrays = [*self.optimizer.parameters.values()]
        arrays += [array for kept in self.optimizer.state.values() for array in kept.values()]
        return sum(array.nbytes for array in arrays)


def add(gradients: Arrays, comm: MPI.Intracomm) -> None:
    """Replace gradients by their sums over the ranks of a communicator."""
    average_gradients(gradients, comm=comm)
    for gradient in gradients.values():
        gradient *= comm.size

"""Training steps of a model on a mesh of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.parallel import (
    AdamW,
    DividedParameters,
    ExpertParallel,
    Mesh,
    Optimizer,
    Pipeline,
    average_gradients,
    load,
    save,
    vocabulary_parallel_cross_entropy,
)

from .layers import Embedding, Norm, named
from .meter import Meter
from .model import ATTENTION, SEQUENCES, Plan, along, check, check_batch, chunks_of
from .weights import Array, Arrays, Size


class Trainer:
    """Trains the part of the model that this rank has."""

    optimizer: Optimizer

    def __init__(self, weights: Arrays, size: Size, mesh: Mesh, plan: Plan) -> None:
        check(size, mesh, plan)
        self.size, self.mesh, self.plan = size, mesh, plan
        self.done = 0
        self.tp, self.replicas = along(mesh, "tp"), along(mesh, *SEQUENCES)
        self.places = ATTENTION[plan.attention](along(mesh, "sp")).positions(size.length)
        self.meter = Meter("fsdp" if "fsdp" in mesh.axes else "pp")
        self.chunks = chunks_of(weights, size, mesh, plan, self.meter)
        self.layers = {name: (layer, key) for chunk in self.chunks for name, layer, key in named(chunk)}
        self.prepare()

    def prepare(self) -> None:
        """Create the pipeline, which has one stage if layers are not divided, and the optimizer."""
        stages, plan = along(self.mesh, "pp"), self.plan
        self.pipeline = Pipeline(
            self.chunks, self.loss, comm=stages, schedule=plan.pipeline, micro_batches=plan.micro_batches
        )
        self.ends = stages.Split(int(0 < stages.rank < stages.size - 1))  # the first and the last stage
        self.parameters: Arrays = {name: layer.parameters[key] for name, (layer, key) in self.layers.items()}
        self.gradients: Arrays = {name: layer.gradients[key] for name, (layer, key) in self.layers.items()}
        self.optimizer = AdamW(self.parameters, lr=plan.rate)
        divided = {
            name: (layer.divided[key], layer.comm)
            for name, (layer, key) in self.layers.items()
            if key in getattr(layer, "divided", ())
        }
        first = all(self.mesh.coordinates.get(axis, 0) == 0 for axis in ("dp", "sp"))
        self.driver: Any = DividedParameters(self.parameters, divided, comm=self.mesh.comm, writes=first)

    def step(self, inputs: Array, targets: Array) -> float:
        """Train on a global batch of shape (sequences, positions); return the mean loss."""
        loss = self.learn(inputs, targets)
        self.optimizer.lr = self.rate()
        self.optimizer.step(self.average())
        self.done += 1
        self.forget()
        return loss

    def rate(self) -> float:
        """Return the learning rate: a linear warm-up, and half a cosine down to a tenth."""
        plan = self.plan
        warm = min(1.0, (self.done + 1) / plan.warmup)
        return plan.rate * warm * (0.55 + 0.45 * float(np.cos(np.pi * min(1.0, self.done / plan.steps))))

    def learn(self, inputs: Array, targets: Array) -> float:
        """Run forward and backward passes; return the mean loss of the whole batch."""
        loss = self.passes(self.mine(inputs), self.mine(targets))
        everyone = along(self.mesh, *SEQUENCES, "sp")
        with self.meter.along(self.averaged):
            return float(pycoll.allreduce(np.array([loss]), comm=everyone)[0]) / everyone.size

    def measure(self, inputs: Array, targets: Array) -> float:
        """Return the mean loss of a batch, without training on it."""
        loss = self.learn(inputs, targets)
        self.forget()
        return loss

    def forget(self) -> None:
        """Set the gradients to zero."""
        for layer, key in self.layers.values():
            layer.gradients[key][...] = 0

    @property
    def averaged(self) -> str:
        """The axes over which gradients are averaged."""
        return " and ".join(axis for axis in (*SEQUENCES, "sp") if axis in self.mesh.axes) or "dp"

    def mine(self, batch: Array) -> Array:
        """Return the sequences of this rank, with its positions."""
        check_batch(len(batch), self.replicas.size, self.plan.micro_batches)
        return np.split(batch, self.replicas.size)[self.replicas.rank][:, self.places]

    def passes(self, inputs: Array, targets: Array) -> float:
        """Run forward and backward passes of the sequences of this rank; return their mean loss."""
        return self.pipeline.step(inputs, targets)

    def loss(self, y: Array, targets: Array) -> tuple[float, Array]:
        """Return the mean loss of logits, and its gradient."""
        with self.meter.along("tp"):
            return vocabulary_parallel_cross_entropy(y, targets.reshape(-1), self.tp)

    def average(self) -> Arrays:
        """Return the gradients, added and averaged over the ranks that have the same parameters."""
        if self.plan.sequence and self.tp.size > 1:
            kinds = Norm, Embedding, ExpertParallel  # their gradients are those of the rows of this rank
            self.add([name for name, (layer, _) in self.layers.items() if isinstance(layer, kinds)], self.tp, "tp")
        if "embedding.table" in self.gradients and self.ends.size > 1:  # one for tokens, one for logits
            self.add(["embedding.table"], self.ends, "pp")
        ep = along(self.mesh, "ep")
        divided = [
            name for name, (layer, key) in self.layers.items() if isinstance(layer, ExpertParallel) and key != "gate"
        ]
        of_experts = {name: self.gradients[name] for name in divided}
        for gradient in of_experts.values():  # a sum over the ranks along ep
            gradient /= ep.size
        with self.meter.along("dp"):
            average_gradients(of_experts, comm=along(self.mesh, "dp", "sp"))
        others = {name: gradient for name, gradient in self.gradients.items() if name not in of_experts}
        with self.meter.along(self.averaged):
            average_gradients(others, comm=along(self.mesh, *SEQUENCES, "sp"))
        return self.gradients

    def add(self, names: list[str], comm: MPI.Intracomm, axis: str) -> None:
        """Replace gradients by their sums over the ranks of a communicator."""
        with self.meter.along(axis):
            average_gradients({name: self.gradients[name] for name in names}, comm=comm)
        for name in names:
            self.gradients[name] *= comm.size

    def save(self, path: str) -> None:
        """Write a checkpoint, which can be loaded on another mesh."""
        save(path, self.driver, self.optimizer, {"steps": self.done})

    def load(self, path: str) -> None:
        """Continue from a checkpoint."""
        self.done = load(path, self.driver, self.optimizer)["steps"]

    def state_bytes(self) -> int:
        """Return the size of the parameters and of the state of the optimizer."""
        arrays = [*self.optimizer.parameters.values()]
        arrays += [array for kept in self.optimizer.state.values() for array in kept.values()]
        return sum(array.nbytes for array in arrays)

    def difference(self, whole: Arrays) -> float:
        """Return the largest difference of a parameter of this rank from whole parameters, relative to the largest."""
        wanted = chunks_of(whole, self.size, self.mesh, self.plan, self.meter)
        expected = {name: layer.parameters[key] for chunk in wanted for name, layer, key in named(chunk)}
        largest = max(np.abs(array).max() for array in whole.values())
        return float(max(np.abs(self.parameters[name] - array).max() for name, array in expected.items()) / largest)

    def free(self) -> None:
        """Free communicators."""
        self.driver.free()
        self.pipeline.free()
        self.ends.Free()

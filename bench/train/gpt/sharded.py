"""Training steps of a model whose parameters are sharded over the axis ``fsdp``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from pycoll.parallel import AdamW, FullyShardedDataParallel, average_gradients, save

from .layers import named
from .model import along
from .trainer import Trainer
from .weights import Array, Arrays


class ShardedTrainer(Trainer):
    """Gathers each part of the model for its forward pass and for its backward pass."""

    def prepare(self) -> None:
        """Create the driver, with a unit for each part that has parameters of its own, and the optimizer."""
        (model,) = self.chunks
        self.parts = [
            (part, {name: (layer, key) for name, layer, key in named(part, "" if at[0] == "_" else f"{at}.")})
            for at, part in model.parts.items()
        ]
        self.head = len(self.parts) - 1
        units = [list(found) for _, found in self.parts[: self.head]]
        whole = {name: layer.parameters[key] for name, (layer, key) in self.layers.items()}
        self.driver = FullyShardedDataParallel(whole, units, comm=along(self.mesh, "fsdp"))
        for layer, key in self.layers.values():
            layer.parameters[key] = None
        self.optimizer = AdamW(self.driver.shards, lr=self.plan.rate)

    def passes(self, inputs: Array, targets: Array) -> float:
        """Run forward and backward passes of the sequences of this rank; return their mean loss."""
        count = self.plan.micro_batches
        batches = zip(np.split(inputs, count), np.split(targets, count), strict=True)
        return sum(self.through(x, wanted) for x, wanted in batches) / count

    def through(self, x: Array, targets: Array) -> float:
        """Run a forward and a backward pass; return the loss."""
        kept = []
        for number, (part, _) in enumerate(self.parts):
            with self.gathered(number):
                x, saved = part.forward(x)
            kept.append(saved)
        value, dy = self.loss(x, targets)
        dy /= self.plan.micro_batches
        for number, (part, found) in reversed(list(enumerate(self.parts))):
            with self.gathered(number, backward=number != self.head):
                dy = part.backward(dy, kept.pop())
                for name, (layer, key) in found.items() if number != self.head else ():
                    self.driver.ready(name, layer.gradients[key])
                    layer.gradients[key][...] = 0
        return value

    @contextlib.contextmanager
    def gathered(self, number: int, backward: bool = False) -> Iterator[None]:
        """Gather the parameters of a part.  The head has the table of the embedding, whose gradient comes last."""
        _, found = self.parts[number]
        unit = 0 if number == self.head else number
        with self.driver.backward(unit) if backward else self.driver.forward(unit) as parameters:
            for name, (layer, key) in found.items():
                layer.parameters[key] = parameters[name]
            yield

    def forget(self) -> None:
        """Discard the averages of backward passes since the last step."""
        super().forget()
        self.driver.zero_grad()

    def average(self) -> Arrays:
        """Return the averages of the shards of this rank, over all axes."""
        gradients = self.driver.synchronize()
        with self.meter.along(self.averaged):
            average_gradients(gradients, comm=along(self.mesh, "dp", "sp"))
        return gradients

    def save(self, path: str) -> None:
        """Write a checkpoint on the ranks of one replica."""
        replicas = along(self.mesh, "dp", "sp")
        save(path, self.driver, self.optimizer, {"steps": self.done}, replicas=replicas)

    def difference(self, whole: Arrays) -> float:
        """Return the largest difference of a parameter from whole parameters, relative to the largest."""
        found = self.driver.state_dict()
        largest = max(np.abs(array).max() for array in whole.values())
        return float(max(np.abs(found[name] - array).max() for name, array in whole.items()) / largest)

    def free(self) -> None:
        """Free communicators."""
        self.driver.free()

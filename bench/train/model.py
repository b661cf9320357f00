"""A multilayer perceptron with ReLU and softmax, layer by layer, as plain functions of its parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from .data import Data

Arrays = dict[str, np.ndarray]


class Perceptron:
    """Knows the shapes of its layers; parameters are given to every call, by name."""

    def __init__(self, widths: list[int]) -> None:
        self._shapes = list(itertools.pairwise(widths))

    @property
    def layers(self) -> range:
        """The numbers of the layers, in forward order."""
        return range(len(self._shapes))

    def initial(self, seed: int, dtype: np.dtype) -> Arrays:
        """Random parameters, in forward order."""
        random = np.random.default_rng(seed)
        parameters = {}
        for layer, shape in enumerate(self._shapes):
            weight = random.normal(0.0, np.sqrt(2.0 / shape[0]), shape)
            parameters[f"layer{layer}.weight"] = weight.astype(dtype)
            parameters[f"layer{layer}.bias"] = np.zeros(shape[1], dtype)
        return parameters

    def forward(self, layer: int, parameters: Mapping[str, np.ndarray], values: np.ndarray) -> np.ndarray:
        """A layer's output."""
        output = values @ parameters[f"layer{layer}.weight"]
        output += parameters[f"layer{layer}.bias"]
        return output if layer == self.layers[-1] else np.maximum(output, 0, out=output)

    def loss(self, scores: np.ndarray, digits: np.ndarray) -> tuple[float, np.ndarray]:
        """The cross entropies' sum, and its derivative by the scores."""
        rows = np.arange(len(digits))
        shifted = scores - scores.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        loss = float((np.log(total[:, 0]) - shifted[rows, digits]).sum())
        error = exponentials / total
        error[rows, digits] -= 1
        return loss, error

    def backward(
        self, layer: int, parameters: Mapping[str, np.ndarray], values: np.ndarray, error: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """A layer's gradients for its input and the derivative by its output."""
        yield f"layer{layer}.bias", error.sum(axis=0)
        yield f"layer{layer}.weight", values.T @ error

    def through(
        self, layer: int, parameters: Mapping[str, np.ndarray], values: np.ndarray, error: np.ndarray
    ) -> np.ndarray:
        """The derivative by the output of the layer before; nothing for the first layer."""
        if layer == 0:
            return error[:0]
        return error @ parameters[f"layer{layer}.weight"].T * (values > 0)

    def accuracy(self, parameters: Mapping[str, np.ndarray], data: Data) -> float:
        """The share of digits that are recognised."""
        values = data.images
        for layer in self.layers:
            values = self.forward(layer, parameters, values)
        return float((values.argmax(axis=1) == data.digits).mean())

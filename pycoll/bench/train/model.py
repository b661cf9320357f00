"""A multilayer perceptron with ReLU and softmax, as functions of its parameters, layer by layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from .data import Data

Arrays = dict[str, np.ndarray]


class Perceptron:
    """A multilayer perceptron without state; the caller passes the parameters by name to each method."""

    def __init__(self, widths: list[int]) -> None:
        self._shapes = list(itertools.pairwise(widths))

    @property
    def layers(self) -> range:
        """The layer numbers in forward order."""
        return range(len(self._shapes))

    def initial(self, seed: int, dtype: np.dtype) -> Arrays:
        """Return random parameters in forward order."""
        random = np.random.default_rng(seed)
        parameters = {}
        for layer, shape in enumerate(self._shapes):
            weight = random.normal(0.0, np.sqrt(2.0 / shape[0]), shape)
            parameters[f"layer{layer}.weight"] = weight.astype(dtype)
            parameters[f"layer{layer}.bias"] = np.zeros(shape[1], dtype)
        return parameters

    def forward(self, layer: int, parameters: Mapping[str, np.ndarray], values: np.ndarray) -> np.ndarray:
        """Return the output of a layer."""
        output = values @ parameters[f"layer{layer}.weight"]
        output += parameters[f"layer{layer}.bias"]
        return output if layer == self.layers[-1] else np.maximum(output, 0, out=output)

    def loss(self, scores: np.ndarray, digits: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of the cross entropies, and its gradient with respect to the scores."""
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
        """Yield the gradients of the parameters of a layer, from its input and the gradient of its output."""
        yield f"layer{layer}.bias", error.sum(axis=0)
        yield f"layer{layer}.weight", values.T @ error

    def through(
        self, layer: int, parameters: Mapping[str, np.ndarray], values: np.ndarray, error: np.ndarray
    ) -> np.ndarray:
        """Return the gradient of the output of the previous layer; an empty array for the first layer."""
        if layer == 0:
            return error[:0]
        return error @ parameters[f"layer{layer}.weight"].T * (values > 0)

    def accuracy(self, parameters: Mapping[str, np.ndarray], data: Data) -> float:
        """Return the share of correctly classified digits."""
        values = data.images
        for layer in self.layers:
            values = self.forward(layer, parameters, values)
        return float((values.argmax(axis=1) == data.digits).mean())

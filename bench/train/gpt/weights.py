"""The size of a model, and its initial weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray
Arrays = dict[str, Array]


class Size(NamedTuple):
    """The size of a model."""

    tokens: int = 128  # in the vocabulary
    length: int = 64  # of a sequence
    width: int = 64
    heads: int = 4
    layers: int = 4
    experts: int = 0  # in each layer; 0 is one network for all tokens


def initial(size: Size, seed: int, dtype: np.dtype) -> Arrays:
    """Return whole initial weights by name, those of GPT-2: normal with 0.02, less where branches end."""
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 0.02) -> Array:
        return random.normal(0.0, scale, shape).astype(dtype)

    def linear(name: str, rows: int, columns: int, scale: float = 0.02) -> Arrays:
        return {f"{name}.weight": normal(rows, columns, scale=scale), f"{name}.bias": np.zeros(columns, dtype)}

    def norm(name: str) -> Arrays:
        return {f"{name}.gain": np.ones(size.width, dtype), f"{name}.bias": np.zeros(size.width, dtype)}

    width, last = size.width, 0.02 / np.sqrt(2 * size.layers)
    weights = {"embedding.table": normal(size.tokens, width), "positions.table": normal(size.length, width)}
    for layer in range(size.layers):
        name = f"layer{layer}"
        weights |= norm(f"{name}.norm1")
        weights |= linear(f"{name}.attention.qkv", width, 3 * width)
        weights |= linear(f"{name}.attention.output", width, width, last)
        weights |= norm(f"{name}.norm2")
        if size.experts:
            weights[f"{name}.experts.gate"] = normal(width, size.experts)
            weights[f"{name}.experts.up"] = normal(size.experts, width, 4 * width)
            weights[f"{name}.experts.down"] = normal(size.experts, 4 * width, width, scale=last)
        else:
            weights |= linear(f"{name}.mlp.up", width, 4 * width)
            weights |= linear(f"{name}.mlp.down", 4 * width, width, last)
    return weights | norm("norm")

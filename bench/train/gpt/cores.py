"""The attention of heads: on one rank, or with the sequence divided over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from .weights import Array, Size


class Local:
    """Causal attention of whole sequences."""

    def places(self, length: int) -> Array:
        """Return the positions of a sequence that this rank has."""
        return np.arange(length)

    def forward(self, q: Array, k: Array, v: Array) -> tuple[Array, Any]:
        q, k, v = (each.swapaxes(1, 2) for each in (q, k, v))
        scores = q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ v).swapaxes(1, 2), (q, k, v, weights)

    def backward(self, dy: Array, saved: Any) -> tuple[Array, Array, Array]:
        q, k, v, weights = saved
        dy = dy.swapaxes(1, 2)
        dweights = dy @ v.swapaxes(2, 3)
        dscores = weights * (dweights - (dweights * weights).sum(-1, keepdims=True)) * q.shape[-1] ** -0.5
        return (
            (dscores @ k).swapaxes(1, 2),
            (dscores.swapaxes(2, 3) @ q).swapaxes(1, 2),
            (weights.swapaxes(2, 3) @ dy).swapaxes(1, 2),
        )


def core_of(attention: str, size: Size, comm: MPI.Intracomm) -> Any:
    """Return the attention for sequences that are divided over the ranks of a communicator."""
    return Local()

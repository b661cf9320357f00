"""Clipping of gradients by their global norm.

Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import pycoll

from .flat import Arrays, as_given


def clip_by_global_norm(gradients: Arrays, max_norm: float, comm: MPI.Intracomm | None = None) -> float:
    """Scale gradients in place so that their global norm is at most `max_norm`.

    With `comm`, each of its ranks holds a shard of the gradients.  Returns the norm before, as
    ``torch.nn.utils.clip_grad_norm_`` does.  Raises ValueError for a negative `max_norm`.
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm={max_norm} is negative")
    arrays = [as_given(f"gradients[{name!r}]", gradient) for name, gradient in gradients.items()]
    squares = np.array([sum(_square(array.reshape(-1)) for array in arrays)], np.float64)
    if comm is not None:
        squares = pycoll.allreduce(squares, comm=comm)
    norm = float(np.sqrt(squares[0]))
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:  # scale if the norm is NaN too, so that it shows
        for array in arrays:
            np.multiply(array, scale, out=array)
    return norm


def _square(vector: np.ndarray, block: int = 1 << 16) -> float:
    """The sum of squares, in double precision."""
    wide = np.complex128 if vector.dtype.kind == "c" else np.float64
    blocks = (vector[i : i + block].astype(wide, copy=False) for i in range(0, len(vector), block))
    return sum(float(np.vdot(block, block).real) for block in blocks)

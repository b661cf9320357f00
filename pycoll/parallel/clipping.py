"""Clipping of gradients by their global norm.

See Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import pycoll

from ..base.numbers import check_real
from .flat import Arrays, check_in_place


def clip_by_global_norm(gradients: Arrays, max_norm: float, comm: MPI.Intracomm | None = None) -> float:
    """Scale gradients in place so that their global norm is at most `max_norm`.

    Compare ``torch.nn.utils.clip_grad_norm_``.

    Parameters
    ----------
    gradients : mapping of str to array
        The gradients, or a shard of them.
    max_norm : float
        The largest norm after scaling.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator whose ranks hold the shards.  All its ranks call this together.  Without it, `gradients` are
        complete.

    Returns
    -------
    float
        The Euclidean norm of all gradients before scaling.

    Raises
    ------
    ValueError
        If `max_norm` is negative, or an array is read-only or a scalar of NumPy.

    References
    ----------
    Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
    https://arxiv.org/abs/1211.5063
    """
    check_real("max_norm", max_norm)
    if not max_norm >= 0:
        raise ValueError(f"max_norm={max_norm} is negative")
    arrays = check_in_place("gradients", gradients).values()
    squares = np.array([sum(_square(array.reshape(-1)) for array in arrays)], np.float64)
    if comm is not None:
        squares = pycoll.allreduce(squares, comm=comm)
    norm = float(np.sqrt(squares[0]))
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:  # scale for a NaN norm too, so that the gradients show it
        for array in arrays:
            np.multiply(array, scale, out=array)
    return norm


def _square(vector: np.ndarray, block: int = 1 << 16) -> float:
    """Return the sum of the squared magnitudes, in double precision."""
    wide = np.complex128 if vector.dtype.kind == "c" else np.float64
    blocks = (vector[i : i + block].astype(wide, copy=False) for i in range(0, len(vector), block))
    return sum(float(np.vdot(block, block).real) for block in blocks)

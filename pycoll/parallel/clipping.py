"""Clipping of gradients by their global norm.

See Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

import pycoll

from ..base.numbers import check_real
from .flat import Arrays, check_in_place


def clip_by_global_norm(
    gradients: Arrays, max_norm: float, comm: MPI.Comm | None = None, *, copies: Mapping[str, int] | None = None
) -> float:
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
    copies : mapping of str to int, optional
        The numbers of ranks of `comm` that hold the same gradient, for example `copies` of a tensor-parallel layer.
        Each of these gradients counts once.  A gradient that is not listed is on one rank, or each rank has a part.

    Returns
    -------
    float
        The Euclidean norm of all gradients before scaling.

    Raises
    ------
    TypeError
        If gradients are integers.
    ValueError
        If `max_norm` is negative, or an array is read-only or a scalar of NumPy.  Also if `copies` names a gradient
        that does not exist, or has a number that is not between 1 and the number of ranks.

    References
    ----------
    Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
    https://arxiv.org/abs/1211.5063
    """
    check_real("max_norm", max_norm)
    if not max_norm >= 0:
        raise ValueError(f"max_norm={max_norm} is negative")
    arrays, copies = check_in_place(gradients), copies or {}
    _check_copies(copies, arrays, comm.size if comm is not None else 1)
    each = (_square(array.reshape(-1)) / copies.get(name, 1) for name, array in arrays.items())
    squares = np.array([sum(each)], np.float64)
    if comm is not None:
        squares = pycoll.allreduce(squares, comm=comm)
    norm = float(np.sqrt(squares[0]))
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:  # scale for a NaN norm too, so that the gradients show it
        for array in arrays.values():
            np.multiply(array, scale, out=array)
    return norm


def _check_copies(copies: Mapping[str, int], arrays: Arrays, ranks: int) -> None:
    for name, number in copies.items():
        if name not in arrays:
            raise ValueError(f"copies[{name!r}]: there is no such gradient")
        if not 1 <= number <= ranks:
            raise ValueError(f"copies[{name!r}]={number} is not between 1 and {ranks}, the number of ranks")


def _square(vector: np.ndarray, block: int = 1 << 16) -> float:
    """Return the sum of the squared magnitudes, in double precision."""
    wide = np.complex128 if vector.dtype.kind == "c" else np.float64
    blocks = (vector[i : i + block].astype(wide, copy=False) for i in range(0, len(vector), block))
    return sum(float(np.vdot(block, block).real) for block in blocks)

"""Tensor parallelism: layers whose weights are divided over the ranks of a communicator.

The layers are those of Megatron-LM (Shoeybi et al., 2019, arXiv 1909.08053), and with ``sequence=True`` those of
Korthikanti et al. (2022, arXiv 2205.05198), where activations between them are divided along their first axis.

A column-parallel layer and a row-parallel layer belong together: the first computes some columns of its output on each
rank, which are the input of the second.  The first begins with `enter_region`, the second ends with `leave_region`;
each of these functions is the backward pass of the other.

`forward` returns the output and what `backward` needs, so that several batches can be in flight.  `backward` adds to
`gradients` and returns the gradient of the input.  `backward_input` returns the gradient of the input, and a function
that adds to `gradients` later; some schedules of pipelines use it.

Bytes that a rank sends are for the ring algorithms on p ranks; Z is the size of the whole activation in bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI

import pycoll

from .flat import beside, module_of

Array = Any


def block(array: Array, comm: MPI.Comm, axis: int = 0) -> Array:
    """Return a copy of the block of this rank, where an array is divided along an axis.

    Parameters
    ----------
    array : array
        The whole array.
    comm : mpi4py.MPI.Intracomm
        The communicator.
    axis : int, default 0
        The axis.

    Returns
    -------
    array
        The block, contiguous.

    Raises
    ------
    ValueError
        If the length of the axis is not a multiple of the number of ranks.
    """
    length, ranks = array.shape[axis], comm.size
    if length % ranks:
        raise ValueError(
            f"{ranks} ranks cannot divide axis {axis} of length {length} into equal blocks; "
            f"change the length to a multiple of {ranks}, or the number of ranks"
        )
    return np.split(array, ranks, axis)[comm.rank].copy(order="C")


def enter_region(x: Array, comm: MPI.Comm | None = None, sequence: bool = False) -> Array:
    """Return the input of layers that are divided over ranks: x itself, or all its rows.

    This is f in the paper on Megatron-LM, and g in the one on sequence parallelism.  Its backward pass is
    `leave_region`: each rank computes with x, so their gradients are added.

    Parameters
    ----------
    x : array of shape (rows, ...)
        The same array on all ranks; with `sequence`, the rows of this rank.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    sequence : bool, default False
        Whether the rows are divided over the ranks.

    Returns
    -------
    array
        x; with `sequence`, the rows of all ranks.

    Notes
    -----
    Sent: 0, with `sequence` (p - 1) * Z // p.
    """
    if not sequence:
        return x
    whole = pycoll.allgather(_contiguous(x), comm=comm)
    return whole.reshape(-1, *x.shape[1:])


def leave_region(x: Array, comm: MPI.Comm | None = None, sequence: bool = False) -> Array:
    """Return the output of layers that are divided over ranks: the sum over the ranks, or the rows of this rank of it.

    This is g in the paper on Megatron-LM, and its counterpart in the one on sequence parallelism.  Its backward pass is
    `enter_region`.

    Parameters
    ----------
    x : array of shape (rows, ...)
        What this rank contributes to the sum.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    sequence : bool, default False
        Whether to divide the rows of the sum over the ranks.

    Returns
    -------
    array
        The sum; with `sequence`, the rows of this rank.

    Raises
    ------
    ValueError
        With `sequence`, if the number of rows is not a multiple of the number of ranks.

    Notes
    -----
    Sent: 2 * (p - 1) * Z // p, with `sequence` (p - 1) * Z // p.
    """
    x = _contiguous(x)
    if not sequence:
        return pycoll.allreduce(x, comm=comm)
    ranks = (comm or MPI.COMM_WORLD).size
    if len(x) % ranks:
        raise ValueError(
            f"sequence=True: {len(x)} rows cannot be divided over {ranks} ranks; "
            f"change the number of rows to a multiple of {ranks}"
        )
    return pycoll.reduce_scatter(x, np.empty_like(x, shape=(len(x) // ranks, *x.shape[1:])), comm=comm)


class TensorLayer(ABC):
    """What all layers have.

    Attributes
    ----------
    parameters : dict of str to array
        The arrays of this rank.
    gradients : dict of str to array
        Sums of their gradients; set them to zero before each step.
    divided : dict of str to int
        The axes along which parameters are divided.
    copies : dict of str to int
        The numbers of ranks that have the other parameters, for `clip_by_global_norm`.
    comm : mpi4py.MPI.Intracomm
        The communicator.
    """

    _axes: ClassVar[dict[str, int]]

    def __init__(self, whole: dict[str, Array], comm: MPI.Comm | None, sequence: bool) -> None:
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.divided = {name: axis for name, axis in self._axes.items() if name in whole}
        self.parameters = {
            name: block(array, self.comm, self.divided[name]) if name in self.divided else array.copy()
            for name, array in whole.items()
        }
        self.gradients = {name: np.zeros_like(array) for name, array in self.parameters.items()}
        self.copies = {name: self.comm.size for name in whole if name not in self.divided}
        self._sequence = sequence

    def backward(self, dy: Array, saved: Any) -> Array:
        """Add to the gradients; return the gradient of x, with its shape."""
        dx, add = self.backward_input(dy, saved)
        add()
        return dx

    @abstractmethod
    def backward_input(self, dy: Array, saved: Any) -> tuple[Array, Callable[[], None]]:
        """Return the gradient of x, and a function that adds to the gradients of the parameters."""

    def _enter(self, x: Array) -> Array:
        return enter_region(x, self.comm, self._sequence)

    def _leave(self, x: Array) -> Array:
        return leave_region(x, self.comm, self._sequence)


class Linear(TensorLayer):
    """What both linear layers have."""

    def __init__(
        self, weight: Array, bias: Array | None = None, *, comm: MPI.Comm | None = None, sequence: bool = False
    ) -> None:
        super().__init__({"weight": weight} if bias is None else {"weight": weight, "bias": bias}, comm, sequence)

    def _add(self, x: Array, dy: Array) -> None:
        self.gradients["weight"] += x.T @ dy
        if "bias" in self.gradients:
            self.gradients["bias"] += dy.sum(0)


class ColumnParallelLinear(Linear):
    """``y = x @ weight + bias``, where each rank has a block of the columns of the weight, and computes those of y.

    Parameters
    ----------
    weight : array of shape (width, columns)
        The whole weight, the same on all ranks.
    bias : array of shape (columns,), optional
        The whole bias.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    sequence : bool, default False
        Whether each rank has a block of the rows of x.  `forward` gathers the rows.

    Raises
    ------
    ValueError
        If the number of columns is not a multiple of the number of ranks.

    Notes
    -----
    Sent in `forward`: 0, with `sequence` (p - 1) * Z // p.
    Sent in `backward`: 2 * (p - 1) * Z // p, with `sequence` 2 * (p - 1) * Z // p.
    Z is the size of x.  With `sequence`, `backward` gathers x again instead of keeping all its rows.
    """

    _axes: ClassVar[dict[str, int]] = {"weight": 1, "bias": 0}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the columns of this rank, and what `backward` needs.

        Parameters
        ----------
        x : array of shape (rows, width)
            The input, the same on all ranks; with `sequence`, the rows of this rank.

        Returns
        -------
        array of shape (rows, columns / ranks)
            The columns of this rank, for all rows.
        object
            What `backward` needs.
        """
        return self._enter(x) @ self.parameters["weight"] + self.parameters.get("bias", 0), x

    def backward_input(self, dy: Array, saved: Any) -> tuple[Array, Callable[[], None]]:
        """Return the gradient of x, and a function that adds to the gradients of the parameters."""
        x = self._enter(saved)
        return self._leave(dy @ self.parameters["weight"].T), partial(self._add, x, dy)


class RowParallelLinear(Linear):
    """``y = x @ weight + bias``, where each rank has the columns of x and the rows of the weight that belong together.

    Parameters
    ----------
    weight : array of shape (width, columns)
        The whole weight, the same on all ranks.
    bias : array of shape (columns,), optional
        The whole bias, which all ranks have.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    sequence : bool, default False
        Whether `forward` leaves only a block of the rows of y on each rank.

    Raises
    ------
    ValueError
        If the width is not a multiple of the number of ranks.

    Notes
    -----
    Sent in `forward`: 2 * (p - 1) * Z // p, with `sequence` (p - 1) * Z // p.
    Sent in `backward`: 0, with `sequence` (p - 1) * Z // p.
    Z is the size of y.
    """

    _axes: ClassVar[dict[str, int]] = {"weight": 0}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Return the sum over the ranks, and what `backward` needs.

        Parameters
        ----------
        x : array of shape (rows, width / ranks)
            The columns of this rank, for example the output of a `ColumnParallelLinear`.

        Returns
        -------
        array of shape (rows, columns)
            The output, the same on all ranks; with `sequence`, the rows of this rank.
        object
            What `backward` needs.

        Raises
        ------
        ValueError
            With `sequence`, if the number of rows is not a multiple of the number of ranks.
        """
        return self._leave(x @ self.parameters["weight"]) + self.parameters.get("bias", 0), x

    def backward_input(self, dy: Array, saved: Any) -> tuple[Array, Callable[[], None]]:
        """Return the gradient of the columns of this rank, and a function that adds to those of the parameters."""
        dy = self._enter(dy)
        return dy @ self.parameters["weight"].T, partial(self._add, saved, dy)


class VocabularyParallelEmbedding(TensorLayer):
    """Rows of a table for tokens, where each rank has a block of the rows.

    Parameters
    ----------
    table : array of shape (tokens, width)
        The whole table, the same on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    sequence : bool, default False
        Whether `forward` leaves only a block of the rows of its output on each rank.

    Raises
    ------
    ValueError
        If the number of tokens is not a multiple of the number of ranks.

    Notes
    -----
    Sent in `forward`: 2 * (p - 1) * Z // p, with `sequence` (p - 1) * Z // p.
    Sent in `backward`: 0, with `sequence` (p - 1) * Z // p.
    Z is the size of the output.
    """

    _axes: ClassVar[dict[str, int]] = {"table": 0}

    def __init__(self, table: Array, *, comm: MPI.Comm | None = None, sequence: bool = False) -> None:
        super().__init__({"table": table}, comm, sequence)

    def forward(self, tokens: Array) -> tuple[Array, Any]:
        """Return the rows of the table, and what `backward` needs.

        Parameters
        ----------
        tokens : array of int of shape (rows,)
            The tokens, the same on all ranks.

        Returns
        -------
        array of shape (rows, width)
            The rows of the table, the same on all ranks; with `sequence`, those of this rank.
        object
            What `backward` needs.

        Raises
        ------
        IndexError
            If a token is not a row of the table.
        TypeError
            If `tokens` does not have a dtype of integers.
        ValueError
            If `tokens` does not have one axis.
        """
        table = self.parameters["table"]
        tokens = _checked_tokens("tokens", beside(tokens, table), len(table) * self.comm.size)
        if tokens.ndim != 1:
            raise ValueError(f"tokens has shape {tokens.shape}, but must have one axis")
        own = tokens - self.comm.rank * len(table)
        here = (own >= 0) & (own < len(table))
        rows = np.where(here[:, None], table[np.where(here, own, 0)], 0)
        return self._leave(rows), (own[here], here)

    def backward_input(self, dy: Array, saved: Any) -> tuple[None, Callable[[], None]]:
        """Return None, because tokens have no gradient, and a function that adds to those of the parameters."""
        own, here = saved
        dy = self._enter(dy)[here]
        return None, lambda: module_of(dy).add.at(self.gradients["table"], own, dy)


def vocabulary_parallel_cross_entropy(
    logits: Array, targets: Array, comm: MPI.Comm | None = None, *, ignore_index: int = -100
) -> tuple[float, Array]:
    """Return the mean cross-entropy of logits that are divided over the ranks, and its gradient.

    Only the maximum, the sum of exponentials and the logit of the target of each row are sent.

    Parameters
    ----------
    logits : array of shape (rows, tokens / ranks)
        The columns of this rank.
    targets : array of int of shape (rows,)
        The token of each row, the same on all ranks.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    ignore_index : int, default -100
        The target of rows that do not count, as in ``torch.nn.functional.cross_entropy``.

    Returns
    -------
    float
        The mean over the rows that count, the same on all ranks; NaN if there are none.
    array
        Its gradient, with the shape of `logits`; zero for the rows that do not count.

    Raises
    ------
    IndexError
        If a target is neither a token nor `ignore_index`.
    TypeError
        If `targets` does not have a dtype of integers.
    ValueError
        If `targets` does not have one element for each row.

    Notes
    -----
    Sent: 6 * (p - 1) * Z // p.
    Z is the size of one number for each row.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    targets, columns = beside(targets, logits), logits.shape[1]
    if targets.shape != (len(logits),):
        raise ValueError(f"targets has shape {targets.shape}, but logits has {len(logits)} rows")
    targets = _checked_tokens("targets", targets, columns * comm.size, ignore_index)
    rows, counts = module_of(logits).arange(len(logits)), targets != ignore_index
    maximum = pycoll.allreduce(logits.max(1), op=MPI.MAX, comm=comm)
    exponentials = np.exp(logits - maximum[:, None])
    own = targets - comm.rank * columns
    here = counts & (own >= 0) & (own < columns)
    column = np.where(here, own, 0)
    sums = np.stack([exponentials.sum(1), np.where(here, logits[rows, column] - maximum, 0)])
    total, target = pycoll.allreduce(sums, comm=comm)
    gradient = exponentials / total[:, None]
    gradient[rows[here], column[here]] -= 1
    number = int(counts.sum())
    if not number:
        return float("nan"), np.zeros_like(gradient)
    loss = np.where(counts, np.log(total) - target, 0).sum() / number
    return float(loss), np.where(counts[:, None], gradient, 0) / number


def _checked_tokens(name: str, tokens: Array, count: int, ignored: int | None = None) -> Array:
    """Tokens in a dtype that has room for their differences."""
    if tokens.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {tokens.dtype}, not that of integers")
    wrong = (tokens < 0) | (tokens >= count)
    if ignored is not None:
        wrong = wrong & (tokens != ignored)
    found = tokens[wrong]
    if len(found):
        but = "" if ignored is None else f", nor ignore_index={ignored}"
        raise IndexError(f"{name}: {int(found[0])} is not in 0 <= token < {count}{but}")
    return tokens.astype(np.int64)


def _contiguous(array: Array) -> Array:
    return array if array.flags.c_contiguous else array.copy()

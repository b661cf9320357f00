"""Attention of sequences whose positions are divided over the ranks of a communicator.

`Attention` computes on one rank.  `UlyssesAttention` exchanges positions for heads, so that each rank has all positions
of some heads.  `RingAttention` keeps the positions where they are, and sends keys and values around a ring.  All three
are used in the same way.  `forward` returns the output and what `backward` needs; `backward` returns the gradients of
queries, keys and values.

All arrays have the shape (sequences, positions, heads, width of a head).  Keys and values have one shape, and may have
other numbers of positions and heads than queries.  If they have fewer heads, each of these serves the same number of
consecutive heads of queries, which is called grouped-query attention (Ainslie et al., 2023, arXiv 2305.13245).

Bytes that a rank sends are for p ranks; Z is the size of the keys of one rank in bytes.  In `forward`, the ranks also
exchange the shapes of their arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll

from .attention_shapes import agree, check, check_equal
from .driver import pending, wait_for

Array = Any


class Attention:
    """Softmax attention of whole sequences.

    Parameters
    ----------
    causal : bool, default True
        Whether a position attends only to itself and to the positions before it.

    Raises
    ------
    ValueError
        If the shapes or dtypes of queries, keys and values do not fit, or the gradient does not have the shape of the
        output.

    References
    ----------
    Vaswani et al., "Attention Is All You Need", 2017. https://arxiv.org/abs/1706.03762

    Dao et al., "FlashAttention", 2022, on softmax in blocks. https://arxiv.org/abs/2205.14135
    """

    def __init__(self, causal: bool = True) -> None:
        self._causal = causal

    def positions(self, length: int) -> np.ndarray:
        """Return the positions of a sequence that this rank has: all of them."""
        return np.arange(length)

    def forward(self, q: Array, k: Array, v: Array) -> tuple[Array, Any]:
        """Return the output, with the shape of the queries, and what `backward` needs."""
        check(q, k, v)
        q, k, v = (_grouped(each, k.shape[2]) for each in (q, k, v))
        softmax = _Softmax(q)
        softmax.add(slice(None), q, k, v, self._causal)
        o, lse = softmax.result()
        return _ungrouped(o), (q, k, v, o, lse)

    def backward(self, dy: Array, saved: Any) -> tuple[Array, Array, Array]:
        """Return the gradients of queries, keys and values, given the gradient of the output."""
        q, k, v, o, lse = saved
        do = _of_output(dy, o)
        found = _gradients(q, k, v, do, (do * o).sum(-1), lse, self._causal)
        dq, dk, dv = (_ungrouped(each).astype(q.dtype, copy=False) for each in found)
        return dq, dk, dv


class UlyssesAttention:
    """Attention with two all-to-alls: each rank computes some heads for all positions.

    Rank r has the block r of the positions.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    causal : bool, default True
        Whether a position attends only to itself and to the positions before it.

    Raises
    ------
    ValueError
        In `forward` on all ranks, if the numbers of heads are not multiples of the number of ranks, the shapes or
        dtypes of queries, keys and values do not fit, or ranks have different shapes or dtypes.  In `positions`, if the
        length of the sequence is not a multiple of the number of ranks.  In `backward`, if the gradient does not have
        the shape of the output.

    Notes
    -----
    Sent in `forward`: 4 * (p - 1) * Z // p.
    Sent in `backward`: 4 * (p - 1) * Z // p.
    This is for queries with the shape of the keys.

    References
    ----------
    Jacobs et al., "DeepSpeed Ulysses", 2023. https://arxiv.org/abs/2309.14509
    """

    def __init__(self, comm: MPI.Comm | None = None, causal: bool = True) -> None:
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._attention = Attention(causal)

    def positions(self, length: int) -> np.ndarray:
        """Return the positions of a sequence that this rank has."""
        return _pieces(length, self._comm.size)[self._comm.rank]

    def forward(self, q: Array, k: Array, v: Array) -> tuple[Array, Any]:
        """Return the output, with the shape of the queries, and what `backward` needs."""
        ranks = self._comm.size
        check_equal(agree(q, k, v, self._comm), "UlyssesAttention")
        for name, x in ("q", q), ("k", k):
            if x.shape[2] % ranks:
                raise ValueError(
                    f"{x.shape[2]} heads of {name} cannot be divided over {ranks} ranks; change the number of heads to "
                    f"a multiple of {ranks}, or use RingAttention"
                )
        y, saved = self._attention.forward(self._to_heads(q[None])[0], *self._to_heads(np.stack([k, v])))
        return self._to_positions(y[None])[0], (saved, q.shape)

    def backward(self, dy: Array, saved: Any) -> tuple[Array, Array, Array]:
        """Return the gradients of queries, keys and values, given the gradient of the output."""
        saved, shape = saved
        _check_gradient(dy, shape)
        dq, *others = self._attention.backward(self._to_heads(dy[None])[0], saved)
        dk, dv = self._to_positions(np.stack(others))
        return self._to_positions(dq[None])[0], dk, dv

    def _to_heads(self, x: Array) -> Array:
        """Exchange positions for heads in arrays of shape (arrays, sequences, positions, heads, width)."""
        arrays, sequences, positions, heads, width = x.shape
        ranks = self._comm.size
        blocks = np.moveaxis(x.reshape(arrays, sequences, positions, ranks, heads // ranks, width), 3, 0)
        found = np.moveaxis(self._exchanged(blocks), 0, 2)
        return found.reshape(arrays, sequences, ranks * positions, heads // ranks, width)

    def _to_positions(self, x: Array) -> Array:
        """Undo `_to_heads`."""
        arrays, sequences, positions, heads, width = x.shape
        ranks = self._comm.size
        blocks = np.moveaxis(x.reshape(arrays, sequences, ranks, positions // ranks, heads, width), 2, 0)
        found = np.moveaxis(self._exchanged(blocks), 0, 3)
        return found.reshape(arrays, sequences, positions // ranks, ranks * heads, width)

    def _exchanged(self, blocks: Array) -> Array:
        sent = blocks.copy(order="C")
        return pycoll.alltoall(sent, np.empty_like(sent), comm=self._comm)


class RingAttention:
    """Attention that sends keys and values around a ring, while each rank computes with those that it has.

    The softmax is updated with each block, so no rank ever has the scores of all positions.  With a causal mask, rank r
    has the pieces r and 2 * p - 1 - r of 2 * p equal pieces of the positions, so that all ranks do the same work.
    Without a mask, ranks may have different numbers of queries, and of keys.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The communicator, COMM_WORLD by default.
    causal : bool, default True
        Whether a position attends only to itself and to the positions before it.

    Raises
    ------
    ValueError
        In `positions`, if the length of the sequence is not a multiple of the number of ranks, or for a causal mask of
        twice that number.
        In `forward` on all ranks, if the shapes or dtypes of queries, keys and values do not fit, or ranks have
        different shapes or dtypes apart from the numbers of positions.  Also for a causal mask, if the number of
        positions of a rank is odd, or numbers of positions differ.
        In `backward`, if the gradient does not have the shape of the output.

    Notes
    -----
    Sent in `forward`: 2 * (p - 1) * Z.
    Sent in `backward`: (p > 1) * (4 * p - 2) * Z.
    This is for ranks with equally many keys.
    Keys and values go around in both passes; in `backward`, their gradients follow them, and return to their rank.

    References
    ----------
    Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023.
    https://arxiv.org/abs/2310.01889

    Brandon et al., "Striped Attention", 2023, on the balance of causal masks. https://arxiv.org/abs/2311.09431
    """

    def __init__(self, comm: MPI.Comm | None = None, causal: bool = True) -> None:
        self._comm = MPI.COMM_WORLD if comm is None else comm
        self._causal = causal

    def positions(self, length: int) -> np.ndarray:
        """Return the positions of a sequence that this rank has, in the order of its arrays."""
        pieces = _pieces(length, len(self._numbers(0)) * self._comm.size)
        return np.concatenate([pieces[number] for number in self._numbers(self._comm.rank)])

    def forward(self, q: Array, k: Array, v: Array) -> tuple[Array, Any]:
        """Return the output, with the shape of the queries, and what `backward` needs."""
        positions = agree(q, k, v, self._comm)
        self._check_mask(positions)
        lengths = [keys for _, keys in positions]
        q, k, v = (_grouped(each, k.shape[2]) for each in (q, k, v))
        softmax = _Softmax(q)
        own = np.stack([k, v]).copy()  # contiguous
        for source, (keys, values) in self._blocks(own, lengths):
            for mine, theirs, causal in self._pairs(source, q.shape[-2]):
                softmax.add(mine, q[..., mine, :], keys[..., theirs, :], values[..., theirs, :], causal)
        o, lse = softmax.result()
        return _ungrouped(o), (q, own, o, lse, lengths)

    def backward(self, dy: Array, saved: Any) -> tuple[Array, Array, Array]:
        """Return the gradients of queries, keys and values, given the gradient of the output."""
        q, own, o, lse, lengths = saved
        do = _of_output(dy, o)
        d = (do * o).sum(-1)
        dq, gradients = np.zeros_like(q), None
        arriving = _Moving(self._comm, 1, "gradients")
        for source, (keys, values) in self._blocks(own, lengths):
            block = np.zeros_like(own, shape=(2, *keys.shape))
            for mine, theirs, causal in self._pairs(source, q.shape[-2]):
                at, of = (..., mine, slice(None)), (..., theirs, slice(None))
                found = _gradients(q[at], keys[of], values[of], do[at], d[..., mine], lse[..., mine], causal)
                dq[at] += found[0]
                block[0][of] += found[1]
                block[1][of] += found[2]
            gradients = block if gradients is None else block + arriving.wait()
            arriving.start(gradients, lengths[source - 1])
        dk, dv = map(_ungrouped, arriving.wait())
        return _ungrouped(dq), dk, dv

    def _check_mask(self, positions: list[tuple[int, int]]) -> None:
        """Raise ValueError if there is a causal mask, and positions do not fit it."""
        if not self._causal:
            return
        check_equal(positions, "a causal mask")
        queries, keys = positions[0]
        if queries != keys:
            raise ValueError(
                f"a causal mask needs as many keys as queries, but a rank has {queries} queries and {keys} keys"
            )
        if queries % 2:
            raise ValueError(
                f"{queries} positions on a rank cannot be divided into 2 equal pieces; "
                f"change the length of the sequence to a multiple of {2 * self._comm.size}, and use `positions`"
            )

    def _blocks(self, own: Array, lengths: list[int]) -> Any:
        """Yield the keys and values of each rank, and send them on in the meantime."""
        rank, ranks = self._comm.rank, self._comm.size
        moving = _Moving(self._comm, 0, "keys and values")
        for step in range(ranks):
            source = (rank - step) % ranks
            if step < ranks - 1:
                moving.start(own, lengths[source - 1])
            yield source, own
            if step < ranks - 1:
                own = moving.wait()

    def _numbers(self, rank: int) -> tuple[int, ...]:
        """The numbers of the pieces of the positions that a rank has."""
        return (rank, 2 * self._comm.size - 1 - rank) if self._causal else (rank,)

    def _pairs(self, source: int, length: int) -> Any:
        """Yield positions of queries and of keys that belong together, and whether the mask cuts through them."""
        if not self._causal:
            yield slice(None), slice(None), False
            return
        mine, theirs = self._numbers(self._comm.rank), self._numbers(source)
        piece = length // len(mine)
        for i, one in enumerate(mine):
            for j, other in enumerate(theirs):
                if other <= one:
                    at, of = (slice(each * piece, (each + 1) * piece) for each in (i, j))
                    yield at, of, other == one


class _Moving:
    """An array that moves from each rank to the next one; blocks may have different numbers of positions."""

    def __init__(self, comm: MPI.Comm, tag: int, what: str) -> None:
        self._comm, self._tag, self._what = comm, tag, what

    def start(self, array: Array, length: int) -> None:
        """Send an array, and receive one with `length` positions."""
        shape = (*array.shape[:-2], length, array.shape[-1])
        self._sent, self._received = array, np.empty_like(array, shape=shape)
        rank, ranks = self._comm.rank, self._comm.size
        if ranks == 1:
            self._received, self._requests = array, []
            return
        pending.add(self)  # the caller computes now, which may raise an exception
        self._requests = [
            pycoll.irecv(self._received, (rank - 1) % ranks, self._tag, comm=self._comm),
            pycoll.isend(array, (rank + 1) % ranks, self._tag, comm=self._comm),
        ]

    def wait(self) -> Array:
        rank, ranks = self._comm.rank, self._comm.size
        before, after = (rank - 1) % ranks, (rank + 1) % ranks
        wait_for(
            self._requests,
            f"moving the {self._what} in RingAttention on rank {rank} of {ranks}",
            lambda: f"it waits for rank {before} to send a block, or for rank {after} to receive one",
        )
        pending.discard(self)
        return self._received


class _Softmax:
    """Softmax over blocks of keys, one after the other, in the letters of the paper on FlashAttention."""

    def __init__(self, q: Array) -> None:
        self.o = np.zeros_like(q)  # the sum of values, weighted with exp(S - m)
        self.m = np.full_like(q[..., 0], -np.inf)  # the maximum of the scores S so far
        self.l = np.zeros_like(q[..., 0])  # the sum of exp(S - m)

    def add(self, at: slice, q: Array, k: Array, v: Array, causal: bool) -> None:
        """Add a block of keys and values for the queries at some positions."""
        s = _scores(q, k, causal)
        m = np.maximum(self.m[..., at], s.max(-1))
        p = np.exp(s - m[..., None])
        rescale = np.exp(self.m[..., at] - m)
        self.l[..., at] = self.l[..., at] * rescale + p.sum(-1)
        self.o[..., at, :] = self.o[..., at, :] * rescale[..., None] + p @ v
        self.m[..., at] = m

    def result(self) -> tuple[Array, Array]:
        """Return the output O, and the logarithm of the sum of the exponentials of the scores."""
        return self.o / self.l[..., None], self.m + np.log(self.l)


def _scores(q: Array, k: Array, causal: bool) -> Array:
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    return np.where(np.tri(*s.shape[-2:], like=q) > 0, s, -np.inf) if causal else s


def _gradients(
    q: Array, k: Array, v: Array, do: Array, d: Array, lse: Array, causal: bool
) -> tuple[Array, Array, Array]:
    """Return dQ, dK and dV of a block; d is the row sum of dO * O."""
    p = np.exp(_scores(q, k, causal) - lse[..., None])
    dp = do @ v.swapaxes(-1, -2)
    ds = p * (dp - d[..., None]) * q.shape[-1] ** -0.5
    dk, dv = ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do
    return ds @ k, dk.sum(2, keepdims=True), dv.sum(2, keepdims=True)


def _grouped(x: Array, groups: int) -> Array:
    """Return x with shape (sequences, groups, heads of a group, positions, width); each group has one head of keys."""
    sequences, positions, heads, width = x.shape
    return np.moveaxis(x.reshape(sequences, positions, groups, heads // groups, width), 1, 3)


def _ungrouped(x: Array) -> Array:
    """Undo `_grouped`."""
    sequences, groups, heads, positions, width = x.shape
    return np.moveaxis(x, 3, 1).reshape(sequences, positions, groups * heads, width)


def _of_output(dy: Array, output: Array) -> Array:
    """Return the gradient of an output in groups, with its shape."""
    sequences, groups, heads, positions, width = output.shape
    _check_gradient(dy, (sequences, positions, groups * heads, width))
    return _grouped(dy, groups)


def _check_gradient(dy: Array, shape: tuple[int, ...]) -> None:
    if dy.shape != shape:
        raise ValueError(f"dy has shape {dy.shape}, but the output has {shape}")


def _pieces(length: int, count: int) -> list[np.ndarray]:
    if length % count:
        raise ValueError(
            f"a sequence of {length} positions cannot be divided into {count} equal pieces; "
            f"change its length to a multiple of {count}"
        )
    return np.split(np.arange(length), count)

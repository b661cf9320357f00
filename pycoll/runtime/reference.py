"""The reference executor: runs the rounds of a schedule as they are written, over point-to-point messages of mpi4py.

It shows what a schedule means, in the fewest lines: each Send is one message, each block is one array, and nothing is
prepared, cut or kept.  The other executors compute the same bits in less time.  ``PYCOLL_EXECUTOR=reference`` runs all
calls with it (`pycoll.runtime.by_reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from ..base.counters import count
from ..schedule.moves import AFTER, Block, Combine, Copy, Recv, Reduce, Round, Send

Values = dict[Block, np.ndarray]  # the value of each block that a rank holds, as bytes
Combination = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of a left and a right operand


def run(
    comm: MPI.Intracomm,
    rounds: Iterable[Round],
    values: Values,
    size_of: Callable[[Block], int],
    combine: Combination,
    tag: int = 0,
) -> Iterator[list[MPI.Request]]:
    """Run the rounds of this rank on the blocks that it holds.

    Parameters
    ----------
    comm : MPI.Intracomm
        The communicator of the messages.
    rounds : iterable of rounds
        The schedule of this rank.
    values : dict of arrays of bytes
        The blocks that this rank holds; in the end, they are those after the last round.
    size_of : callable
        The size of a block in bytes.
    combine : callable
        Computes the combination of two values.
    tag : int, default 0
        The tag of all messages; messages between two ranks match in the order in which they are started.

    Yields
    ------
    list of MPI.Request
        The messages of a round.  The caller completes them before it continues.
    """
    for moves in rounds:
        requests: list[MPI.Request] = []
        received: list[tuple[Recv | Reduce, np.ndarray]] = []
        for move in moves:
            match move:
                case Send(to, blocks):
                    message = np.concatenate([np.empty(0, np.uint8), *(values[block] for block in blocks)])
                    requests.append(comm.Isend([message, MPI.BYTE], to, tag))
                    count(message.nbytes)
                case Recv(source, blocks) | Reduce(source, blocks):
                    message = np.empty(sum(map(size_of, blocks)), np.uint8)
                    requests.append(comm.Irecv([message, MPI.BYTE], source, tag))
                    received.append((move, message))
                case Copy(block, to):
                    values[to] = values[block]
                case Combine(block, into, order):
                    values[into] = _combined(combine, values[into], values[block], order)
        yield requests
        for move, message in received:
            for block in move.blocks:
                value, message = message[: size_of(block)], message[size_of(block) :]
                if isinstance(move, Reduce):
                    value = _combined(combine, values[block], value, move.order)
                values[block] = value


def _combined(combine: Combination, held: np.ndarray, other: Any, order: str) -> np.ndarray:
    return combine(held, other) if order == AFTER else combine(other, held)

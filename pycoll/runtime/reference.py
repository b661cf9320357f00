"""The reference executor: runs the rounds of a schedule as they are written, over point-to-point messages of mpi4py.

It shows what a schedule means, in the fewest lines: each Send is one message, each block is one array, and nothing is
prepared, cut or kept.  The other executors compute the same bits in less time.  ``PYCOLL_EXECUTOR=reference`` runs all
calls with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.ops import Operation, bound_division, real_dtype
from ..base.counters import count
from ..compiler.blocks import ProgramKey, layout, rounds_of
from ..compiler.program import EMPTY, RECV, Message, Program, Step, Wait
from ..schedule.moves import AFTER, Block, Combine, Copy, Recv, Reduce, Round, Send
from .executable import Executable, PythonSteps

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


def parts(
    comm: MPI.Intracomm, key: ProgramKey, buffers: CheckedBuffers, operation: Operation | None, tag: int
) -> Iterator[Executable]:
    """Run a call on its buffers, in host memory; yield one part for each round."""
    rounds, where = rounds_of(key), layout(key)
    memory = [np.empty(0) if array is None else array for array in (buffers.send, buffers.recv)]
    memory = [array.reshape(-1).view(np.uint8) for array in memory]
    given = {block: memory[buffer][start : start + size].copy() for block, (buffer, start, size) in where.held.items()}
    values, errors = dict(given), list[Exception]()

    def combine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        assert operation
        result = np.empty_like(left)
        try:
            operation.binder(buffers.dtype)(*(value.view(buffers.dtype) for value in (left, right, result)))()
        except (ArithmeticError, Warning) as error:  # raised in the end, because other ranks wait for the next rounds
            errors.append(error)
        return result

    for number, requests in enumerate(run(comm, rounds, values, where.size, combine, tag)):
        yield _until_complete(number, rounds[number], requests)
    for block, region in where.wanted.items():
        if values[block] is not given.get(block) or region != where.held[block]:
            memory[RECV][region.start : region.start + region.size] = values[block]
    if operation and operation.mean and buffers.recv is not None and buffers.count:
        mean = memory[RECV][: buffers.count * buffers.dtype.itemsize].view(real_dtype(buffers.dtype))
        bound_division(mean, comm.size, mean)()
    if errors:
        yield PythonSteps(Program([], [], 0), [partial(_raise, errors[0])])


def _raise(error: Exception) -> None:
    raise error


def _until_complete(number: int, moves: Round, requests: list[MPI.Request]) -> Executable:
    """The part that waits for the messages of a round."""
    messages: list[Message] = []
    for move in moves:
        if isinstance(move, Send):
            messages.append(Message(True, move.to, EMPTY, number))
        elif isinstance(move, Recv | Reduce):
            messages.append(Message(False, move.source, EMPTY, number))
    waits: list[Step] = [Wait(message) for message in range(len(messages))]
    return PythonSteps(Program(waits, messages, 0), [request.Wait for request in requests], requests)

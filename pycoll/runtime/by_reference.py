"""Runs calls by the reference executor: copies their buffers to blocks and back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.ops import Operation, bound_division, real_dtype
from ..compiler.layout import layout
from ..compiler.program import EMPTY, RECV, Message, Program, Step, Wait
from ..compiler.program_key import ProgramKey
from ..compiler.programs import rounds_of
from ..schedule.moves import Recv, Reduce, Round, Send
from .executable import Executable, PythonSteps
from .reference import run


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
    for block, region in [*where.wanted.items(), *where.again]:
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

"""Runs of the compiled core: the executables of calls in host memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from .. import core
from ..arguments.memory import array_at
from ..arguments.ops import Operation, bound_division, kernels, real_dtype
from ..compiler.program import Message, Program, Wait
from .interruptions import interruptions_delayed
from .recording import recorder
from .recording.steps import Tracer


def loop_of(operation: Operation, dtype: np.dtype) -> np.ufunc | core.Pairs | None:
    """What has a loop that combines arrays of this dtype, with the same bits at any address; or None."""
    combine: Any = operation.combine
    if operation.name in ("MINLOC", "MAXLOC"):
        return core.Pairs(dtype, operation.name == "MAXLOC") if core.has_pairs(dtype) else None
    product = combine is np.multiply and dtype.kind == "c"  # its bits depend on the addresses of the operands
    if product or not isinstance(combine, np.ufunc) or (combine, dtype) in kernels or not core.has_loop(combine, dtype):
        return None
    return combine


def divisor_of(dtype: np.dtype, size: int) -> np.generic | None:
    """The number of ranks in the real dtype of the elements, if NumPy has a loop that divides them; or None."""
    real = real_dtype(dtype)
    known = core.has_loop(np.true_divide, real) and (np.divide, real) not in kernels
    return real.type(size) if known else None


def code_of(program: Program, dtype: np.dtype, operation: Operation | None, size: int) -> core.Code:
    """A program in the form that the core reads; codes with a user-defined operation are not kept."""
    find = known_code if operation is None or operation.predefined else known_code.__wrapped__
    return find(program, dtype, operation, size)


@lru_cache(maxsize=512)
def known_code(program: Program, dtype: np.dtype, operation: Operation | None, size: int) -> core.Code:
    """The same, which is made once."""
    if operation is None:
        return core.Code(program, None, dtype, None, None)
    divisor = divisor_of(dtype, size) if operation.mean else None
    return core.Code(program, loop_of(operation, dtype), dtype, divisor, partial(_compute, operation, dtype, size))


def _compute(
    operation: Operation, dtype: np.dtype, size: int, begun: list[bool], left: int, right: int, out: int, nbytes: int
) -> BaseException | None:
    """Combine or divide elements at these addresses, where the core has no loop of NumPy.

    Returns the exception of a signal handler: other ranks wait for the next steps.  `begun` gets an item before
    anything is computed.
    """
    done = False
    try:
        with interruptions_delayed():
            begun.append(True)
            # NumPy does not check for overlap if an operand and the result are one object
            arrays = {at: array_at(at, nbytes, dtype) for at in (left, right, out) if at}
            if right:
                operation.binder(dtype)(arrays[left], arrays[right], arrays[out])()
            else:
                mean = arrays[out].view(real_dtype(dtype))
                bound_division(mean, size, mean)()
            done = True
    except BaseException as error:
        if not done:
            raise
        return error
    return None


def arithmetic_error(bits: int, error: Exception | None) -> Exception | None:
    """The error of arithmetic in a run, or None if NumPy is to ignore it; NumPy warns, if it is to warn.

    `bits` are its floating-point errors; `error` is the first one that was raised in Python.
    """
    try:
        if error:
            return error
        for name, bit in core.FLOATING_POINT_ERRORS.items():
            if bits & bit:
                _WITH_ERRORS[name]()
    except (ArithmeticError, Warning) as raised:
        return raised
    return None


# operations that raise these floating-point errors, so that numpy.seterr applies
_HUGE, _TINY, _ZERO = (np.array([x]) for x in (np.finfo(float).max, np.finfo(float).tiny, 0.0))
_WITH_ERRORS: dict[str, Callable[[], object]] = {
    "divide": partial(np.divide, _HUGE, _ZERO),
    "over": partial(np.add, _HUGE, _HUGE),
    "under": partial(np.multiply, _TINY, _TINY),
    "invalid": partial(np.divide, _ZERO, _ZERO),
}


class Traced:
    """An executable that runs a program in the core step by step, and records the steps."""

    def __init__(self, comm: MPI.Intracomm, run: core.Run, nbytes: int) -> None:
        assert recorder.current
        self._run, self.program, self.tag = run, run.program, run.tag
        self._tracer = Tracer(recorder.current, comm, run.program, nbytes, self)
        self.error: Exception | None = None

    @property
    def complete(self) -> bool:
        return self._run.complete

    @property
    def broken_off(self) -> bool:
        """Whether it ended early, so that it cannot continue."""
        return self._run.broken_off

    @property
    def position(self) -> int:
        return self._run.position

    def begin(self) -> None:
        self._run.tag = self.tag
        self._run.begin()
        self._tracer.begin()

    def advance(self, wait: bool = False) -> bool:
        while not self._run.complete:
            number = self._run.position
            if type(self.program.steps[number]) is Wait:
                self._tracer.look()
            try:
                if not self._run.advance(wait, number + 1):
                    return False
            finally:
                if self._run.position != number:
                    self._tracer.came(number)
        self._tracer.end()
        self.error, self._run.error = self._run.error, None
        return True

    def open_messages(self) -> list[Message]:
        return self._run.open_messages()

    def free(self) -> None:
        """Do nothing: it has no requests of MPI."""

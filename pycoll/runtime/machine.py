"""Programs on the compiled machine: the executables of calls in host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import core
from ..arguments.memory import address, array_at
from ..arguments.ops import Operation, bound_division, kernels, real_dtype
from ..base.counters import count, counting
from ..compiler.program import BLOCKING, Message, Program, Wait
from .executable import Executable, PythonSteps
from .interruptions import interruptions_delayed
from .recording import recorder
from .recording.steps import Tracer

if TYPE_CHECKING:
    from .channel import Channel


def loop_of(operation: Operation, dtype: np.dtype) -> np.ufunc | None:
    """The function of NumPy whose loop combines arrays of this dtype with the same bits at any address; or None."""
    combine: Any = operation.combine
    product = combine is np.multiply and dtype.kind == "c"  # its bits depend on the addresses of the operands
    if product or not isinstance(combine, np.ufunc) or (combine, dtype) in kernels or not core.has_loop(combine, dtype):
        return None
    return combine


def divisor_of(dtype: np.dtype, size: int) -> np.generic | None:
    """The number of ranks in the real dtype of the elements, if NumPy has a loop that divides them; or None."""
    real = real_dtype(dtype)
    known = core.has_loop(np.true_divide, real) and (np.divide, real) not in kernels
    return real.type(size) if known else None


@lru_cache(maxsize=512)
def code_of(program: Program, dtype: np.dtype, operation: Operation | None, size: int) -> core.Code:
    """A program as the machine reads it."""
    if operation is None:
        return core.Code(program, None, dtype, None, None)
    divisor = divisor_of(dtype, size) if operation.mean else None
    return core.Code(program, loop_of(operation, dtype), dtype, divisor, partial(_compute, operation, dtype, size))


def _compute(
    operation: Operation, dtype: np.dtype, size: int, left: int, right: int, out: int, nbytes: int
) -> BaseException | None:
    """Combine or divide elements at these addresses, of which no loop of NumPy can do it alone.

    Returns the exception of a signal handler: other ranks wait for the next steps.
    """
    done = False
    try:
        with interruptions_delayed():
            _computed(operation, dtype, size, left, right, out, nbytes)
            done = True
    except BaseException as error:
        if not done:
            raise
        return error
    return None


def _computed(operation: Operation, dtype: np.dtype, size: int, left: int, right: int, out: int, nbytes: int) -> None:
    # NumPy does not check for overlap if an operand and the result are one object
    arrays = {at: array_at(at, nbytes, dtype) for at in (left, right, out) if at}
    if right:
        operation.binder(dtype)(arrays[left], arrays[right], arrays[out])()
    else:
        mean = arrays[out].view(real_dtype(dtype))
        bound_division(mean, size, mean)()


class MachineRun(Executable):
    """A run of the machine, which can begin again on other buffers."""

    def __init__(self, channel: Channel, program: Program, code: core.Code, scratch: Any, tag: int) -> None:
        super().__init__(program, tag)
        assert channel.mailboxes
        self.machine = core.Run(channel.mailboxes, code, scratch, address(scratch))
        # the bytes of the messages to be counted
        self.sent = [m.region.size for m in program.messages if m.outgoing] if counting() else []

    def __call__(self, send: int, recv: int) -> None:
        """Run it on buffers at these addresses, as a blocking call."""
        if self.sent:
            self.machine.bind(send, recv)
            self.run()
        elif not self.machine(self.tag[0], send, recv) and (error := error_of(self.machine)):
            raise error

    def move(self, send: int, recv: int, tag: int) -> None:
        """Begin the next time on buffers at these addresses."""
        self.tag[:] = (tag,)
        self.machine.bind(send, recv)

    @property
    def complete(self) -> bool:
        """Whether it has run to its end."""
        return self.machine.done

    @property
    def broken_off(self) -> bool:
        """Whether it ended early, so that it cannot continue."""
        return self.machine.failed

    @property
    def position(self) -> int:
        """The number of the next step."""
        return self.machine.position

    def begin(self) -> None:
        """Go to the first step."""
        for nbytes in self.sent:
            count(nbytes)
        self.machine.start(self.tag[0])

    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""
        done = self.machine.advance(wait)
        if done and (self.machine.errors or self.machine.error):
            self.error = error_of(self.machine)
        return done

    def open_messages(self) -> list[Message]:
        """The messages that were started and are not complete."""
        return [self.program.messages[number] for number in self.machine.open_messages()]


def error_of(run: core.Run) -> Exception | None:
    """The error of arithmetic in a run, or None if NumPy is to ignore it; NumPy warns, if it is to warn."""
    try:
        if run.error:
            return run.error
        for name, bit in core.FLOATING_POINT_ERRORS.items():
            if run.errors & bit:
                _WITH_ERRORS[name]()
    except (ArithmeticError, Warning) as error:
        return error
    return None


# operations with these floating-point errors: so NumPy does what the program has asked it to do
_HUGE, _TINY, _ZERO = (np.array([x]) for x in (np.finfo(float).max, np.finfo(float).tiny, 0.0))
_WITH_ERRORS: dict[str, Callable[[], object]] = {
    "divide": partial(np.divide, _HUGE, _ZERO),
    "over": partial(np.add, _HUGE, _HUGE),
    "under": partial(np.multiply, _TINY, _TINY),
    "invalid": partial(np.divide, _ZERO, _ZERO),
}


def bind(
    channel: Channel,
    program: Program,
    dtype: np.dtype,
    operation: Operation | None,
    addresses: tuple[int, int],
    scratch: Any,
    tag: int = BLOCKING,
    peers: Sequence[int] = (),
) -> MachineRun:
    """A run of a program on buffers at these addresses; `peers` are those of registered buffers of other ranks."""
    find = code_of if operation is None or operation.predefined else code_of.__wrapped__
    run = MachineRun(channel, program, find(program, dtype, operation, channel.size), scratch, tag)
    run.machine.bind(*addresses, peers)
    return run


def traced(channel: Channel, run: MachineRun, nbytes: int) -> Executable:
    """An executable that runs the same program step by step, and records it."""
    assert recorder.current
    machine, program, tag = run.machine, run.program, run.tag
    calls: list[Callable[[], object]] = [
        partial(machine.advance, True, number) for number in range(1, len(program.steps) + 1)
    ]
    found = _StepByStep(run, calls)
    found.tag = tag
    found.record(Tracer(recorder.current, channel.comm, program, nbytes, tag))
    return found


class _StepByStep(PythonSteps):
    def __init__(self, run: MachineRun, calls: list[Callable[[], object]]) -> None:
        self._run = run
        requests: list[Any] = [None] * len(run.program.messages)
        for number, step in enumerate(run.program.steps):
            if type(step) is Wait:
                requests[step.message] = _Step(run.machine, number + 1)
        super().__init__(run.program, calls, requests)

    @property
    def broken_off(self) -> bool:
        """Whether it ended early, so that it cannot continue."""
        return self._run.broken_off

    def begin(self) -> None:
        """Go to the first step."""
        self._run.begin()
        super().begin()

    def advance(self, wait: bool = False) -> bool:
        """Run all steps that need no waiting, or with `wait` all steps; return whether it is complete."""
        done = super().advance(wait)
        if done:
            self.error = error_of(self._run.machine)
        return done

    def open_messages(self) -> list[Message]:
        """The messages that were started and are not complete."""
        return self._run.open_messages()

    def free(self) -> None:
        """Do nothing: it has no requests of MPI."""


class _Step:
    """A step that waits for a message."""

    def __init__(self, run: core.Run, end: int) -> None:
        self._run, self._end = run, end

    def Test(self) -> bool:
        """Whether it is complete."""
        return self._run.advance(False, self._end)

    def Wait(self) -> None:
        """Wait until it is complete."""
        self._run.advance(True, self._end)

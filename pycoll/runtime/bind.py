"""Binds programs to addresses: requests for their messages, calls without arguments for their steps.

Binding must be fast, because calls with long buffers at new addresses wait for it.  For buffers in GPU memory, a
launcher binds the steps that run on the GPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address
from ..arguments.memory_kinds import Launcher
from ..arguments.ops import Operation, bound_division, real_dtype
from ..base.counters import counted
from ..compiler.align import LINE, aligned
from ..compiler.program import RECV, Apply, CopyBytes, Divide, Finish, Program, Region, Start, Step, Wait, is_native
from . import native
from .executable import Calls, Executable, TaggedMessage
from .recording import recorder
from .recording.steps import Tracer

if TYPE_CHECKING:
    from ..arguments.streams import Mark

from_address = MPI.buffer.fromaddress
BYTE = MPI.BYTE
frombuffer: Callable[..., np.ndarray] = np.frombuffer
_BYTE = np.dtype(np.uint8)
Maker = Callable[[list[Any], list[np.ndarray]], Callable[[], object]]  # from requests and arrays to the call of a step


def lowered(program: Program, buffers: CheckedBuffers, operation: Operation | None) -> Program:
    """The program for the kind of memory of the buffers, with a division at the end if the operation is a mean."""
    if operation and operation.mean and buffers.recv is not None and buffers.count:
        program = _with_division(program, buffers.count * buffers.dtype.itemsize)
    return buffers.memory.lowered(program)


@lru_cache(maxsize=512)
def _with_division(program: Program, nbytes: int) -> Program:
    return replace(program, steps=[*program.steps, Divide(Region(RECV, 0, nbytes))])


class Template:
    """The steps of a program that run on the host, without the parts that depend on addresses."""

    def __init__(
        self,
        program: Program,
        dtype: np.dtype,
        operation: Operation | None,
        size: int,
        steps: Sequence[Step] | None = None,
        offsets: tuple[int, ...] | None = None,
    ) -> None:
        self._program, self._dtype, self._operation, self._size = program, dtype, operation, size
        self.steps = program.steps if steps is None else steps
        # NumPy does not check for overlap if an operand and the result are one object: so one array for each region
        self._arrays: dict[tuple[int, int, int, np.dtype], int] = {}
        self._makers = [self._maker(step) for step in self.steps]
        self._slices = None if offsets is None else _slices(self._arrays, dtype, offsets)

    def calls(self, bases: Sequence[int], requests: list[Any]) -> Calls:
        """Bind the steps to calls without arguments, on buffers at these addresses."""
        if self._slices is None:
            arrays = [frombuffer(from_address(bases[i] + start, size), dtype) for i, start, size, dtype in self._arrays]
        else:
            arrays = []
            for i, start, item, count, memory in self._slices:
                at = (bases[i] + start) // item
                arrays.append(memory[at : at + count])
        return [make(requests, arrays) for make in self._makers]

    def _array(self, region: Region, dtype: np.dtype) -> int:
        return self._arrays.setdefault((*region, dtype), len(self._arrays))

    def _maker(self, step: Step) -> Maker:
        match step:
            case Wait(number):
                return lambda requests, arrays: requests[number].Wait
            case Start(number):
                outgoing, _, region, _ = self._program.messages[number]
                if outgoing:
                    return lambda requests, arrays: counted(requests[number].Start, region.size)
                return lambda requests, arrays: requests[number].Start
            case Apply(left, right, out):
                assert self._operation
                bound = self._operation.binder(self._dtype)
                one, other, result = (self._array(region, self._dtype) for region in (left, right, out))
                return lambda requests, arrays: bound(arrays[one], arrays[other], arrays[result])
            case CopyBytes(source, to):
                # without another array for a result that is combined before
                dtype = self._dtype if self._dtype.isbuiltin and (*source, self._dtype) in self._arrays else _BYTE
                one, other = self._array(source, dtype), self._array(to, dtype)
                # the same as np.copyto(), in less time
                return lambda requests, arrays: partial(arrays[other].__setitem__, ..., arrays[one])
        assert type(step) is Divide, f"{step} is not a step for the host"
        # complex numbers as pairs of real numbers, whose rounding does not depend on their addresses
        mean = self._array(step.region, real_dtype(self._dtype))
        return lambda requests, arrays: bound_division(arrays[mean], self._size, arrays[mean])


class Copies(Template):
    """The template of a program that only copies, which takes a third of the time to bind: it needs no arrays."""

    def __init__(self, steps: Sequence[CopyBytes]) -> None:
        self.steps = steps
        self._copies = [(*source, to.buffer, to.start) for source, to in steps]

    def calls(self, bases: Sequence[int], requests: list[Any]) -> Calls:
        """Bind the steps to calls without arguments, on buffers at these addresses."""
        return [
            partial(_memmove, bases[other] + to, bases[one] + start, size)
            for one, start, size, other, to in self._copies
        ]


# without the result of `ctypes.memmove`; it releases the GIL, as NumPy does
_memmove = ctypes.cast(ctypes.memmove, ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t))


def _slices(
    arrays: Iterable[tuple[int, int, int, np.dtype]], dtype: np.dtype, offsets: tuple[int, ...]
) -> list[tuple[int, int, int, int, np.ndarray]] | None:
    """Arrays as slices of all memory: (base, start in bytes, itemsize, count, memory); None if elements are unaligned.

    A slice takes half of the time of a new array.
    """
    item = dtype.itemsize
    if not item or LINE % item or any(offset % item for offset in offsets):
        return None
    return [
        (base, start - LINE, one.itemsize, size // one.itemsize, _all_memory(one)) for base, start, size, one in arrays
    ]


@cache
def _all_memory(dtype: np.dtype) -> np.ndarray:
    """All addresses from `LINE` on, as an array of which only slices are used."""
    return frombuffer(from_address(LINE, sys.maxsize // LINE * LINE), dtype)


def template(
    program: Program, offsets: tuple[int, ...], dtype: np.dtype, operation: Operation | None, size: int
) -> Template:
    """A template for a program without messages, on buffers with these offsets in cache lines."""
    return _template(program, offsets, dtype, operation, size)[1]


@lru_cache(maxsize=512)
def _template(
    program: Program, offsets: tuple[int, ...], dtype: np.dtype, operation: Operation | None, size: int
) -> tuple[Program, Template]:
    """The program adapted to buffers with these offsets in cache lines, and a template for it."""
    copies = [step for step in program.steps if type(step) is CopyBytes]
    if len(copies) == len(program.steps):
        return program, Copies(copies)
    if operation and operation.predefined:
        program = aligned(program, offsets, dtype.itemsize)
    return program, Template(program, dtype, operation, size, offsets=offsets)


def bind(
    comm: MPI.Intracomm,
    program: Program,
    buffers: CheckedBuffers,
    bases: Sequence[int],
    operation: Operation | None,
    scratch: Any,
    tag: int | None,
    peers: Sequence[int] = (),
) -> Executable:
    """Bind a `lowered` program to buffers at the addresses `bases`, with requests for all its messages.

    If `tag` is None, messages get the tag that `Executable.tag` contains when they are started.  `peers` are the
    addresses of the buffers of other ranks, for programs of `pycoll.compiler.shared`.
    """
    bases = (*bases, address(scratch), *peers)
    requests: list[Any] = []
    tags: list[int] = []
    send, receive = (comm.Isend, comm.Irecv) if tag is None else (comm.Send_init, comm.Recv_init)
    for outgoing, peer, (buffer, start, size), _ in program.messages:
        memory = [from_address(bases[buffer] + start, size), BYTE]
        make = send if outgoing else receive
        requests.append(TaggedMessage(make, memory, peer, tags) if tag is None else make(memory, peer, tag))
    marks = launcher = None
    if is_native(program):
        calls = [_native_call(comm, program, buffers, operation, requests)]
        calls += Template(program, buffers.dtype, operation, comm.size, program.steps[1:]).calls(bases, requests)
    elif launcher := buffers.memory.launcher(list(bases), buffers.dtype, operation, comm.size):
        marks = {step.step: launcher.mark() for step in program.steps if type(step) is Finish}
        calls = _device_calls(launcher, marks, program, buffers.dtype, operation, comm.size, bases, requests)
    else:
        offsets = tuple([base % LINE for base in bases]) if operation else ()
        find = _template if operation is None or operation.predefined else _template.__wrapped__
        program, template = find(program, offsets, buffers.dtype, operation, comm.size)
        calls = template.calls(bases, requests)
    executable = Executable(program, calls, requests, scratch, marks, tags)
    if recorder.current:
        launches = [launcher.does] if launcher else []
        size, tags = buffers.mean_size(comm.size), tags if tag is None else [tag]
        executable.record(Tracer(recorder.current, comm, program, size, tags, *launches))
    return executable


def _native_call(
    comm: MPI.Intracomm, program: Program, buffers: CheckedBuffers, operation: Operation | None, requests: list[Any]
) -> Callable[[], object]:
    """The call that runs, or starts, the native collective."""
    step: Any = program.steps[0]
    if step.form == "blocking":
        return native.bound(comm, step, buffers, operation)
    requests.append(native.request(comm, step, buffers, operation))
    start: Callable[[], object] = requests[0].Start
    return start


def _device_calls(
    launcher: Launcher,
    marks: dict[int, Mark],
    program: Program,
    dtype: np.dtype,
    operation: Operation | None,
    size: int,
    bases: Sequence[int],
    requests: list[Any],
) -> Calls:
    """The calls of a program with steps that run on a GPU."""
    calls: Calls = []
    for number, step in enumerate(program.steps):
        if type(step) is Finish:
            calls.append(marks[step.step].Wait)
        elif launcher.does(step):
            calls.append(launcher.call(step, marks.get(number)))
        else:
            calls += Template(program, dtype, operation, size, [step]).calls(bases, requests)
    return calls

"""``algorithm="native"``: the native collective of MPI on the buffers of a pycoll call, as a step of a program.

For short messages, the MPI library can be the best choice.  It is also the baseline of comparisons.  Its guarantees
are those of MPI: whether all ranks get bitwise identical floating-point sums depends on the library, and it raises no
floating-point errors.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from ..arguments.check_buffers import CheckedBuffers
from ..arguments.memory import address, is_host
from ..arguments.ops import Operation
from ..base import settings
from ..compiler.program import Collective, Program, Step, Wait
from ..compiler.program_key import Extents, ProgramKey
from ..schedule.registry import COLLECTIVES
from ..selection.select import CommFacts
from .executable import Begun

_SAME_ARITHMETIC = frozenset("ilqILQfd")
_PAIRS = {"fi": MPI.FLOAT_INT, "di": MPI.DOUBLE_INT, "li": MPI.LONG_INT, "hi": MPI.SHORT_INT, "ii": MPI.INT_INT}


@cache
def library() -> str:
    """The MPI library and its version."""
    return re.sub(r"\s+", " ", re.split(r"[\n,]", MPI.Get_library_version())[0]).strip()


def library_file() -> str:
    """The file of the MPI library that this process has loaded; empty if it cannot be found."""
    found = re.compile(r"lib(mpi|mpich|mpi_cray|mpifort)[._-]").match
    return next((path for path, name in loaded_libraries().items() if found(name)), "")


def loaded_libraries() -> dict[str, str]:
    """The shared libraries of this process: path and file name."""
    lines: list[str] = []
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        lines = maps.read().splitlines()
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count("/") and ".so" in line)
    return {path: os.path.basename(path) for path in paths}


def function_name(primitive: str, blocks_vary: bool = False) -> str:
    """The name of the MPI function for a primitive."""
    if primitive == "reduce_scatter":
        return "Reduce_scatter" if blocks_vary else "Reduce_scatter_block"
    return primitive.capitalize()


def datatype(dtype: np.dtype) -> MPI.Datatype:
    """The MPI datatype of the elements of a reduction; raises ValueError if there is none."""
    found = None
    with contextlib.suppress(KeyError, ValueError):
        if dtype.names:
            found = _PAIRS["".join(dtype[name].char for name in dtype.names)]
        elif dtype.type.__module__ == "numpy":
            found = MPI.Datatype.fromcode(dtype.char)
    if found is None or found.extent != dtype.itemsize or not dtype.isnative:
        raise ValueError(f"algorithm='native': MPI has no datatype for dtype {dtype}")
    return found


def same_arithmetic(dtype: np.dtype, operation: Operation) -> bool:
    """Whether MPI and pycoll give the same results for an operation.

    Sums of 8-bit and 16-bit integers saturate in Open MPI.  The minimum of a number and NaN differs between ranks.
    """
    nan = dtype.kind == "f" and operation.name in ("MIN", "MAX")
    return operation.predefined and dtype.char in _SAME_ARITHMETIC and dtype.isnative and not nan


def native_is_same(
    facts: CommFacts, nonblocking: bool, primitive: str, nbytes: int, dtype: np.dtype, op: Operation | None
) -> bool:
    """Whether the native collective may replace an algorithm of pycoll; the same on all ranks.

    It may not if it would give other results, or if a rank may have buffers in GPU memory.  It may not for more bytes
    than some libraries can count.  If other threads cannot call MPI at the same time, it may not on communicators with
    nonblocking collectives of pycoll.
    """
    goes_on = facts.native or not nonblocking
    return suits_mpi(primitive, nbytes, facts.size, dtype, op) and facts.host_memory and goes_on


def suits_mpi(primitive: str, nbytes: int, size: int, dtype: np.dtype, op: Operation | None) -> bool:
    """Whether the native collective gives the same results, and can count these bytes; the same on all ranks."""
    alike = op is None or same_arithmetic(dtype, op)
    known = COLLECTIVES[primitive]
    small = known.varies or known.near or nbytes * size < 1 << 31
    return alike and small and not (settings.TIMEOUT or settings.CHECK)


@cache
def function_at(name: str) -> int:
    """The address of a function in the MPI library that mpi4py has loaded; 0 if it cannot be found."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(MPI.__file__), name), ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


def error_of(code: int) -> MPI.Exception:
    """The error for an error code of MPI, or 0 for a message that is longer than its receive buffer."""
    return MPI.Exception(code or MPI.ERR_TRUNCATE)


def check(buffers: CheckedBuffers, operation: Operation | None) -> None:
    """Raise ValueError or TypeError if the native collective cannot be called with these buffers."""
    if not (is_host(buffers.send) and is_host(buffers.recv)):
        raise TypeError("algorithm='native' supports only buffers in host memory")
    if operation:
        datatype(buffers.dtype)


@lru_cache(maxsize=512)
def program(call: ProgramKey, form: str) -> Program:
    """The program that calls the native collective: "blocking", "nonblocking" or "persistent"."""
    varies = call.algorithm.primitive.varies or call.sends
    extents = (call.sends, call.recvs) if varies else (None, None)
    step = Collective(call.algorithm.primitive.name, call.root, form, *extents)
    return Program([step] if form == "blocking" else [step, Wait(0)], [], 0, str(call.algorithm))


def request(comm: MPI.Intracomm, step: Collective, buffers: CheckedBuffers, operation: Operation | None) -> Any:
    """A request for the native collective on these buffers; all ranks create these in the same order."""
    begin = bound(comm, step, buffers, operation)
    if step.form == "nonblocking":
        return Begun(begin)
    try:
        return begin()
    except NotImplementedError:
        raise ValueError("algorithm='native': this MPI library has no persistent collectives") from None


def bound(comm: MPI.Intracomm, step: Step, buffers: CheckedBuffers, operation: Operation | None) -> Callable[[], Any]:
    """A call without arguments that runs, or starts, the native collective on these buffers."""
    assert isinstance(step, Collective)
    name = function_name(step.primitive, step.sends is not None)
    names = {"blocking": name, "nonblocking": f"I{name.lower()}", "persistent": f"{name}_init"}
    function: Callable[..., Any] = getattr(comm, names[step.form])
    primitive = COLLECTIVES[step.primitive]
    if step.primitive == "barrier":
        return function
    type_ = datatype(buffers.dtype) if operation else MPI.BYTE
    itemsize = buffers.dtype.itemsize if operation else 1

    # also where a rank has no block itself: Open MPI does nothing if the count is 0
    block = next((size for _, size in (*(step.sends or ()), *(step.recvs or ()))), 0)

    def spec(array: Any, extents: Extents | None, in_blocks: bool) -> list[Any] | None:
        if array is None:
            return None
        if extents and primitive.varies and not in_blocks:
            (start, size), *_ = extents
            return [MPI.buffer.fromaddress(address(array) + start, size), type_]
        memory = MPI.buffer.fromaddress(address(array), array.nbytes)
        if primitive.near and not primitive.varies:
            return [memory, block, type_]
        if extents is None or not (primitive.varies and in_blocks):
            return [memory, type_]
        counts, displs = [size // itemsize for _, size in extents], [start // itemsize for start, _ in extents]
        types = [type_] * len(counts) if step.primitive.endswith("alltoallw") else type_
        return [memory, (counts, displs), types]  # only v-variants get here: they move bytes

    send: Any = spec(buffers.send, step.sends, primitive.takes_all)
    recv: Any = spec(buffers.recv, step.recvs, primitive.gives_all)
    if step.primitive == "exscan" and recv is None:  # rank 0 receives nothing, but mpi4py requires a buffer
        recv = [np.empty(buffers.count * itemsize, np.uint8), type_]
    if step.primitive == "bcast":
        return partial(function, recv, step.root)
    given: dict[str, Any] = {"root": step.root} if primitive.rooted else {}
    if operation:
        given["op"] = MPI.Op.fromhandle(operation.handle)
    if step.primitive == "reduce_scatter" and step.sends is not None:
        given["recvcounts"] = [size // itemsize for _, size in step.sends]
    if buffers.in_place:
        send, recv = (send, MPI.IN_PLACE) if primitive.takes_all and primitive.rooted else (MPI.IN_PLACE, recv)
    return partial(function, send, recv, **given)

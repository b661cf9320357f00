"""``algorithm="native"``: MPI's own collective on the buffers of a pycoll call, as a step of a program.

For short messages the library underneath can be the best choice, and it is what the others are compared with.  What
it promises is what MPI promises: whether all ranks get the same bits of a floating-point sum is its affair, and it
raises no floating-point errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from .buffers import Arguments
from .layout import Call, Extents
from .memory import address, is_host
from .ops import Operation
from .program import Collective, Program, Wait
from .schedule import PRIMITIVES

_SAME_ARITHMETIC = frozenset("ilqILQfd")
_PAIRS = {"fi": MPI.FLOAT_INT, "di": MPI.DOUBLE_INT, "li": MPI.LONG_INT, "hi": MPI.SHORT_INT, "ii": MPI.INT_INT}


@cache
def library() -> str:
    """The MPI library and its version."""
    return re.sub(r"\s+", " ", re.split(r"[\n,]", MPI.Get_library_version())[0]).strip()


def function_name(primitive: str, blocks_vary: bool = False) -> str:
    """What MPI calls a primitive."""
    if primitive == "reduce_scatter":
        return "Reduce_scatter" if blocks_vary else "Reduce_scatter_block"
    return primitive.capitalize()


def datatype(dtype: np.dtype) -> MPI.Datatype:
    """MPI's datatype for the numbers that a reduction combines; ValueError if there is none."""
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
    """Whether an operation of MPI's and pycoll's are the same.

    Open MPI's sums of 8 and 16 bits saturate; what the least of a number and NaN is, is not the same on all ranks.
    """
    nan = dtype.kind == "f" and operation.name in ("MIN", "MAX")
    return operation.predefined and dtype.char in _SAME_ARITHMETIC and dtype.isnative and not nan


def check(arguments: Arguments, operation: Operation | None) -> None:
    """ValueError or TypeError if MPI's own collective cannot be called with these."""
    if not (is_host(arguments.send) and is_host(arguments.recv)):
        raise TypeError("algorithm='native' takes buffers in the host's memory only")
    if operation:
        datatype(arguments.dtype)


@lru_cache(maxsize=512)
def program(call: Call, form: str) -> Program:
    """The program that calls MPI's own collective: "blocking", "nonblocking" or "persistent"."""
    varies = call.algorithm.primitive.varies or call.sends
    places = (call.sends, call.recvs) if varies else (None, None)
    step = Collective(call.algorithm.primitive.name, call.root, form, *places)
    return Program([step] if form == "blocking" else [step, Wait(0)], [], 0, str(call.algorithm))


def request(comm: MPI.Intracomm, step: Collective, arguments: Arguments, operation: Operation | None) -> Any:
    """MPI's own collective on these buffers, to be started and waited for; all ranks make them in one order."""
    begin = bound(comm, step, arguments, operation)
    if step.form == "nonblocking":
        return Request(begin)
    try:
        return begin()
    except NotImplementedError:
        raise ValueError("algorithm='native': this MPI library has no persistent collectives") from None


class Request:
    """MPI's own nonblocking collective, to be started once."""

    def __init__(self, begin: Callable[[], MPI.Request]) -> None:
        self._begin = begin
        self._request = MPI.REQUEST_NULL

    def Start(self) -> None:
        """Start it."""
        self._request = self._begin()

    def Test(self) -> bool:
        """Whether it is complete."""
        return self._request.Test()

    def Wait(self) -> bool:
        """Wait until it is complete."""
        return self._request.Wait()

    def Free(self) -> None:
        """There is nothing to be freed: it frees itself when it is complete."""


def bound(
    comm: MPI.Intracomm,
    step: Collective,
    arguments: Arguments,
    operation: Operation | None,
) -> Callable[[], Any]:
    """MPI's own collective on these buffers as a call without arguments."""
    # its blocks are counted in bytes here, whatever their datatypes
    name = function_name("alltoallv" if step.primitive == "alltoallw" else step.primitive, step.sends is not None)
    names = {"blocking": name, "nonblocking": f"I{name.lower()}", "persistent": f"{name}_init"}
    function = getattr(comm, names[step.form])
    primitive = PRIMITIVES[step.primitive]
    if step.primitive == "barrier":
        return function
    type_ = datatype(arguments.dtype) if operation else MPI.BYTE
    itemsize = arguments.dtype.itemsize if operation else 1

    def spec(array: Any, places: Extents | None, in_blocks: bool) -> list | None:
        if array is None:
            return None
        memory = MPI.buffer.fromaddress(address(array), array.nbytes)
        if places is None or not (primitive.varies and in_blocks):
            return [memory, type_]
        counts, displs = [size // itemsize for _, size in places], [start // itemsize for start, _ in places]
        return [memory, (counts, displs), type_]

    send: Any = spec(arguments.send, step.sends, primitive.takes_all)
    recv: Any = spec(arguments.recv, step.recvs, primitive.gives_all)
    if step.primitive == "exscan" and recv is None:  # rank 0 gets nothing, but mpi4py wants a buffer
        recv = [np.empty(arguments.count * itemsize, np.uint8), type_]
    if step.primitive == "bcast":
        return partial(function, recv, step.root)
    given: dict[str, Any] = {"root": step.root} if primitive.rooted else {}
    if operation:
        given["op"] = MPI.Op.fromhandle(operation.handle)
    if step.primitive == "reduce_scatter" and step.sends is not None:
        given["recvcounts"] = [size // itemsize for _, size in step.sends]
    if arguments.in_place:
        send, recv = (send, MPI.IN_PLACE) if primitive.takes_all and primitive.rooted else (MPI.IN_PLACE, recv)
    return partial(function, send, recv, **given)

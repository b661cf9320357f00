"""The buffers of a collective to measure, and the calls of pycoll and of MPI with the same input.

Buffers are NumPy or CuPy arrays.  On a GPU there are two references.  The first is the native collective of MPI on
these buffers, if MPI is CUDA-aware.  The second is a staged call: copy to the host, call MPI, copy back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, repeat
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.arguments.buffer_spec import predefined
from pycoll.arguments.device_copies import pinned
from pycoll.arguments.memory import address
from pycoll.arguments.ops import resolve
from pycoll.runtime import native
from pycoll.runtime.attach import attach
from pycoll.schedule.registry import PRIMITIVES

MEASURED = [name for name, primitive in PRIMITIVES.items() if not primitive.varies]
FORMS = {"blocking": "{}", "nonblocking": "i{}", "persistent": "{}_init"}  # with the names of the functions
OPERATIONS = ("sum", "prod", "min", "max", "avg", "exact_sum")
ARGUMENTS = ("same", "fresh", "typed")  # the same arrays in each call, new views at other addresses, [array, type]
ADDRESSES, STEP = 4096, 64  # of new views: their number, which is more than pycoll keeps, and their distance in bytes
IN_PLACE = ("allgather", "allreduce", "alltoall", "reduce_scatter", "scan")  # every rank can work in place

FLOAT32 = np.dtype(np.float32)
Call = Callable[[], object]


class Case:
    """One collective on about `nbytes` bytes: the whole vector, or the blocks of all ranks together.

    The attribute `count` is the number of elements of the vector, or of the block of one rank.  The attribute `nbytes`
    is the exact number of bytes.  `arguments`, one of `ARGUMENTS`, is the form of the buffer arguments; "typed" calls
    the methods of `pycoll.Comm`.  With `registered`, the buffers of pycoll are registered, those of MPI are not.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        primitive: str,
        nbytes: int,
        dtype: np.dtype = FLOAT32,
        in_place: bool = False,
        op: str = "sum",
        root: int = 0,
        xp: Any = np,
        arguments: str = "same",
        registered: bool = False,
    ) -> None:
        self.comm, self.primitive, self.dtype, self.in_place, self.xp = comm, primitive, dtype, in_place, xp
        self.op, self.root = op, root
        self._persistent: list[Any] = []
        self.arguments = arguments
        self._starts: Iterator[int] = repeat(0)
        self._areas: dict[int, Any] = {}  # the array that each buffer is a part of, by the id of the buffer
        self._registered: list[Any] = []
        self.shape = shape = PRIMITIVES[primitive]
        rank, size = comm.rank, comm.size
        self.count = self.nbytes = 0
        self.send = self.ours = self.native = None
        if primitive == "barrier":
            return
        total = max(1, nbytes // dtype.itemsize)
        self.count = total if shape.cuts else max(1, total // size)
        self.nbytes = self.count * dtype.itemsize * (1 if shape.cuts else size)

        def allocate(wanted: object, all_blocks: bool, registered: bool) -> Any:
            count = self.count * (size if all_blocks else 1)
            room = count + (ADDRESSES * STEP // dtype.itemsize if arguments == "fresh" else 0)
            if registered:  # by all ranks, even those that need no buffer
                area = pycoll.zeros(room if wanted else 0, dtype, comm=comm)
                self._registered.append(area)
            elif wanted:
                area = xp.zeros(room, dtype)
            if not wanted:
                return None
            buffer = area[:count]
            self._areas[id(buffer)] = area
            return buffer

        self.send = allocate(shape.holds(rank, size, root, 1), shape.takes_all, registered)
        inside = in_place and shape.takes_all and not shape.gives_all  # the input of reduce_scatter
        gets = shape.wants(rank, size, root, 1) or primitive == "exscan"  # rank 0 needs a buffer too; it is unchanged
        self.ours = allocate(gets, shape.gives_all or inside, registered)
        self.native = allocate(gets, shape.gives_all or inside, False)
        if primitive == "bcast" and rank == root:
            self.send = None

    @property
    def shared(self) -> bool:
        """Whether the ranks share the memory of all registered buffers; the same on all ranks."""
        code = attach(self.comm).registered.code
        return bool(self._registered) and all(code(address(one), one.nbytes) >= 0 for one in self._registered)

    @property
    def chosen_by(self) -> int:
        """The bytes by which an algorithm is chosen: those in the vector, or in the block of one rank."""
        return self.count * self.dtype.itemsize

    def fill(self) -> None:
        """Fill the buffers with integers so small that sums and products are exact, in any order."""
        random = np.random.default_rng(self.comm.rank)
        most = min(8, max(1, 100 // self.comm.size))
        few = (1, 3 if self.comm.rank < 6 else 2) if self.op == "prod" else (0, most + 1)
        for array in (self.send, self.ours):
            if array is not None:
                array[...] = self.xp.asarray(random.integers(*few, array.size).astype(self.dtype))
        if self.native is not None:
            self.native[...] = self.ours

    def zero(self) -> None:
        """Set all buffers to zero, so that repeated reductions in place stay finite, and memory is allocated.

        After this, "fresh" calls use new views at another address in each call.
        """
        if self.arguments == "fresh":
            step = max(1, STEP // self.dtype.itemsize)
            self._starts = cycle(range(0, ADDRESSES * STEP // self.dtype.itemsize, step))
        for array in (self.send, self.ours, self.native):
            if array is not None:
                array[...] = 0

    def _arguments(self, send: Any, recv: Any) -> tuple[Any, ...]:
        if self.primitive == "barrier":
            return ()
        if self.primitive == "bcast":
            return (recv,)
        return (MPI.IN_PLACE if self.in_place else send, recv)

    def _options(self, op: Any) -> dict[str, Any]:
        return ({"op": op} if self.shape.reduces else {}) | ({"root": self.root} if self.shape.rooted else {})

    def call(self, algorithm: str | None, form: str = "blocking", between: Call | None = None) -> Call:
        """Return a call of an algorithm of pycoll (None: pycoll chooses), in one of `FORMS`.

        `between` is called between start and wait.
        """
        if self.arguments == "typed":
            name = FORMS[form].format(native.function_name(self.primitive).lower()).capitalize()
            function, given = getattr(pycoll.Comm(self.comm), name), self._options(self._op())
        else:
            function = getattr(pycoll, FORMS[form].format(self.primitive))
            given = self._options(self.op) | {"comm": self.comm}
        given["algorithm"] = algorithm
        return self._in_form(self._calling(function, self.send, self.ours, given), form, between)

    def _op(self) -> MPI.Op:
        return MPI.Op.fromhandle(resolve(self.op).handle)

    def _calling(self, function: Callable[..., Any], send: Any, recv: Any, given: dict[str, Any]) -> Call:
        """Return a call of the function with buffer arguments in the form of `arguments`."""
        if self.arguments == "same" or self.primitive == "barrier":
            return partial(function, *self._arguments(send, recv), **given)

        def call() -> Any:
            start = next(self._starts)
            return function(*self._arguments(self._written(send, start), self._written(recv, start)), **given)

        return call

    def _written(self, array: Any, start: int) -> Any:
        """Return a buffer in the form of `arguments`."""
        if array is None:
            return None
        if self.arguments == "typed":
            return [array, self._datatype()]
        area = self._areas.get(id(array))
        return array[:] if area is None else area[start : start + array.size]

    def _datatype(self) -> MPI.Datatype:
        try:
            return native.datatype(self.dtype)
        except ValueError:
            return MPI.BYTE

    def call_native(self, form: str = "blocking", between: Call | None = None) -> Call | None:
        """Return a call of the native collective of MPI on the same input; None if MPI lacks the datatype or form."""
        return self._native_on(self.send, self.native, form, between)

    def _native_on(self, send: Any, recv: Any, form: str = "blocking", between: Call | None = None) -> Call | None:
        name = FORMS[form].format(native.function_name(self.primitive).lower()).capitalize()
        function = getattr(self.comm, name, None)
        if function is None:
            return None
        if self.shape.reduces:
            try:
                native.datatype(self.dtype)
            except ValueError:
                return None
        elif self.xp is np and (
            self.arguments == "same" or all(self.dtype != dtype for _, dtype in predefined())
        ):  # sent as bytes
            send, recv = (None if array is None else array.view(np.uint8) for array in (send, recv))
        operation = resolve(self.op)
        begin = self._calling(function, send, recv, self._options(self._op()))
        try:
            call = self._in_form(begin, form, between)
        except NotImplementedError:  # an MPI library without persistent collectives
            return None
        if not (operation.mean and self.shape.reduces):
            return call

        def call_and_divide() -> None:
            call()
            if recv is not None:
                self.xp.divide(recv, self.comm.size, out=recv)

        return call_and_divide

    def _in_form(self, begin: Callable[[], Any], form: str, between: Call | None) -> Call:
        """Return a call that runs a complete collective, including start and wait."""
        if form == "blocking":
            return begin
        between = between or _nothing
        if form == "nonblocking":

            def start_and_wait() -> None:
                request = begin()
                between()
                request.Wait()

            return start_and_wait
        persistent = begin()
        self._persistent.append(persistent)

        def start_again_and_wait() -> None:
            persistent.Start()
            between()
            persistent.Wait()

        return start_again_and_wait

    def free(self) -> None:
        """Free the persistent requests and the registered buffers."""
        for persistent in self._persistent:
            persistent.Free()
        self._persistent.clear()
        for array in self._registered:
            pycoll.free(array, comm=self.comm)
        self._registered.clear()

    def call_staged(self) -> Call:
        """Return a staged call of MPI: copy to pinned host memory, call MPI, copy back."""
        send, recv = hosts = [
            None if array is None else pinned(array.nbytes).view(self.dtype) for array in (self.send, self.native)
        ]
        collective = self._native_on(send, recv)
        assert collective

        def copy_call_copy() -> None:
            for array, host in zip((self.send, self.native), hosts):
                if array is not None:
                    array.get(out=host)
            collective()
            if self.native is not None:
                self.native.set(recv)
                self.xp.cuda.get_current_stream().synchronize()

        return copy_call_copy

    def call_naive(self) -> Call:
        """Return a call of the naive algorithm on the buffers of MPI, as a reference if MPI lacks the collective."""
        given = self._options(self.op) | {"comm": self.comm, "algorithm": "naive"}
        return partial(getattr(pycoll, self.primitive), *self._arguments(self.send, self.native), **given)

    def wrong(self, call: Call, other: Call) -> int:
        """Run both calls; return the number of elements that differ, over all ranks."""
        self.fill()
        call()
        other()
        different = 0
        if self.ours is not None:
            different = int(np.count_nonzero(self._result(self.ours) != self._result(self.native)))
        return int(self.comm.allreduce(different))

    def _result(self, array: Any) -> Any:
        array = array if self.xp is np else array.get()
        return array if self.shape.cuts or self.shape.gives_all else array[: self.count]


def _nothing() -> None:
    pass

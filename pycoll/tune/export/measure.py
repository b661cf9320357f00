"""Times the algorithms of the MPI library in turn, and selects those that are faster than the library's choice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from mpi4py import MPI

from pycoll.runtime import native
from pycoll.schedule.registry import PRIMITIVES

from ..benchmark_case import Call, Case
from ..timing import alternate, paced, race, ratio
from .rules import DEFAULT, Library

GAIN = 1.08  # an algorithm is selected if it is faster than the library's choice by this factor,
SURE = 0.25  # and slower in at most this share of the rounds
ELEMENTS = 3  # for each rank, in the test of the order
CHECKED = 1 << 20  # bytes up to which its results are compared


def measured(
    comm: MPI.Intracomm, library: Library, todo: Sequence[tuple[str, int]], budget: float
) -> dict[str, list[dict[str, Any]]]:
    """Measure all points; return those of each primitive, each with the sizes for which it stands."""
    found: dict[str, list[dict[str, Any]]] = {}
    rows = paced(comm, todo, budget, "exporting")
    for primitive, of_primitive in groupby(rows, key=lambda row: row[0][0]):
        one = Timer(comm, library, primitive, max(size for name, size in todo if name == primitive))
        # sizes below one element for each rank are the same point
        found[primitive] = _with_ranges(dict(one.point(size, share) for (_, size), share in of_primitive))
        one.free()
    return found


def _with_ranges(measurements: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the points; each stands for the sizes up to the next one, the last one for up to twice its size."""
    sizes = sorted(measurements)
    ends = [*[size - 1 for size in sizes[1:]], 2 * sizes[-1] - 1]
    return [{"nbytes": size, "most": max(size, most)} | measurements[size] for size, most in zip(sizes, ends)]


class Timer:
    """Times the algorithms of one primitive."""

    def __init__(self, comm: MPI.Intracomm, library: Library, primitive: str, most: int) -> None:
        self.comm, self.library, self.primitive = comm, library, primitive
        names = [DEFAULT, *library.algorithms(primitive, most)]
        self.communicators = {name: library.communicator(primitive, name) for name in names}
        if PRIMITIVES[primitive].reduces and library.for_any_operation:
            for name in names:
                if not self._keeps_order(name):
                    self._drop(name)

    def free(self) -> None:
        """Free the communicators, and leave the choice to the library again."""
        self.library.select(self.primitive, DEFAULT)
        for name in list(self.communicators):
            self._drop(name)

    def _drop(self, name: str) -> None:
        one = self.communicators.pop(name)
        if one is not self.comm:
            one.Free()

    def point(self, size: int, budget: float) -> tuple[int, dict[str, Any]]:
        """Return the number of bytes and the record of one point."""
        case = Case(self.comm, self.primitive, size)
        usable = {DEFAULT, *self.library.algorithms(self.primitive, case.nbytes)}
        calls: dict[str, Call] = {}
        for name, case.comm in self.communicators.items():
            if name in usable:
                calls[name] = self._native(case)
        expected = self._result(case, DEFAULT, calls[DEFAULT])
        calls = {name: call for name, call in calls.items() if self._works(case, name, call, expected)}
        first = {name: partial(self._selected, name, call) for name, call in calls.items()}
        case.zero()
        found = race(self.comm, calls, 0.6 * budget, first)
        best = min(found, key=found.__getitem__)
        both = {name: calls[name] for name in (DEFAULT, best)}
        times = alternate(self.comm, both, 0.4 * budget, least=11, before=first)
        gain = ratio(times[DEFAULT], times[best])
        sure = float(np.quantile(times[DEFAULT] / times[best], SURE)) >= 1
        selected = best if gain >= GAIN and sure else None
        if gain <= 1:
            best, gain = DEFAULT, 1.0
        return case.nbytes, {"seconds": found, "best": best, "selected": selected, "gain": gain}

    def _native(self, case: Case) -> Call:
        call = case.call_native()
        assert call  # every library has float32
        return call

    def _selected(self, name: str, call: Call, strictly: bool = False) -> None:
        self.library.select(self.primitive, name, strictly)
        call()

    def _works(self, case: Case, name: str, call: Call, expected: bytes) -> bool:
        """Whether a call gives the result of the library's choice; all ranks get the same answer."""
        try:
            same = self._result(case, name, call) == expected
        except MPI.Exception:  # for example, an algorithm for two ranks on four
            same = False
        self.library.select(self.primitive, DEFAULT)
        return bool(self.comm.allreduce(same, MPI.LAND))

    def _result(self, case: Case, name: str, call: Call) -> bytes:
        """Return the result of a call; nothing if it is long."""
        if case.nbytes <= CHECKED:
            case.fill()
        self._selected(name, call, strictly=True)
        return b"" if case.nbytes > CHECKED or case.native is None else case.native.tobytes()

    def _keeps_order(self, name: str) -> bool:
        """Whether an algorithm reduces in the order of the ranks, as operations that do not commute need it."""
        try:
            same = self._in_order(name) == self._in_order(DEFAULT)
        except MPI.Exception:
            same = False
        return bool(self.comm.allreduce(same, MPI.LAND))

    def _in_order(self, name: str) -> bytes:
        """Return the result of an operation that does not commute: the composition of maps x -> a x + b."""
        comm = self.communicators[name]
        send = np.random.default_rng(comm.rank).integers(1, 1000, (ELEMENTS * comm.size, 2))
        recv = np.zeros_like(send[:ELEMENTS] if self.primitive == "reduce_scatter" else send)
        datatype = MPI.INT64_T.Create_contiguous(2).Commit()
        operation = MPI.Op.Create(_composed, commute=False)
        try:
            getattr(comm, native.function_name(self.primitive))([send, datatype], [recv, datatype], op=operation)
        finally:
            operation.Free()
            datatype.Free()
        return recv.tobytes()


def _composed(first: Any, second: Any, datatype: MPI.Datatype) -> None:
    (a, b), (c, d) = (np.frombuffer(memoryview(one), np.int64).reshape(-1, 2).T for one in (first, second))
    d[...] = a * d + b
    c *= a

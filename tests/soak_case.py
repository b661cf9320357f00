"""One call of the soak (`tests.soak`): its buffers, its arguments in many forms, and what it must receive."""

from __future__ import annotations

import random

import numpy as np
from mpi4py import MPI

METHODS = ["Barrier", "Bcast", "Scatter", "Scatterv", "Gather", "Gatherv", "Reduce", "Allgather", "Allgatherv"]
METHODS += [
    "Allreduce",
    "Reduce_scatter_block",
    "Reduce_scatter",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Scan",
    "Exscan",
]
REDUCTIONS = ["Reduce", "Allreduce", "Reduce_scatter_block", "Reduce_scatter", "Scan", "Exscan"]
TYPES = {dtype: MPI.Datatype.fromcode(dtype) for dtype in ("?", "b", "i2", "i4", "i8", "u1", "u4", "f4", "f8", "c16")}
OPERATIONS = {"SUM": "iufc", "PROD": "iufc", "MAX": "iuf", "MIN": "iuf", "LAND": "iub", "LOR": "iub", "LXOR": "iub"}
OPERATIONS |= dict.fromkeys(("BAND", "BOR", "BXOR"), "iu")
MOST = 1 << 20  # bytes
EDGE = 16  # elements around a buffer that must not change


def user_defined(a, b, datatype) -> None:
    """Add two buffers of int64."""
    np.frombuffer(b, "i8")[:] += np.frombuffer(a, "i8")


USER_DEFINED = MPI.Op.Create(user_defined, commute=True)


class Case:
    """One call with its buffers; `receive` is None on ranks that receive nothing."""

    def __init__(self, shared: random.Random, own: random.Random, rank: int, size: int) -> None:
        self.own, self.rank, self.size = own, rank, size
        self.name = name = shared.choice(METHODS)
        self.root = shared.randrange(size)
        self.here = here = rank == self.root
        self.in_place = shared.random() < 0.25 and name not in ("Barrier", "Bcast")
        self.op, self.dtype = None, np.dtype(shared.choice(list(TYPES)))
        if name in REDUCTIONS:
            fitting = [op for op, kinds in OPERATIONS.items() if self.dtype.kind in kinds]
            self.op = getattr(MPI, shared.choice(fitting))
            if shared.random() < 0.02:
                self.op, self.dtype = USER_DEFINED, np.dtype("i8")
        self.type = TYPES[self.dtype.str.lstrip("<>|=")] if self.dtype.str[1:] in TYPES else TYPES[self.dtype.char]
        limit = shared.choices([0, 64, 4096, 1 << 16, MOST], [5, 50, 25, 14, 6])[0] // self.dtype.itemsize
        whole = shared.randint(0, limit)
        self.count = whole if name in ("Bcast", "Reduce", "Allreduce", "Scan", "Exscan") else whole // size
        self.table = [[shared.randint(0, self.count) for _ in range(size)] for _ in range(size)]
        self.gaps = shared.random() < 0.3  # between blocks
        sends, receives, received = self._lengths()
        rooted_send, rooted_receive = name in ("Scatter", "Scatterv"), name in ("Gather", "Gatherv", "Reduce")
        self.compared = received
        self.send = self._array(sends) if (here or not rooted_send) and name not in ("Barrier", "Bcast") else None
        self.receive = self._array(receives) if (here or not rooted_receive) and name != "Barrier" else None
        self.mine_in_place = self.in_place and (
            here or name not in ("Scatter", "Scatterv", "Gather", "Gatherv", "Reduce")
        )
        if self.mine_in_place and rooted_send:
            self.receive = None
        self.first = None if self.receive is None else self.receive.copy()
        self.edges = None if self.receive is None else self._edges()
        self.expected: np.ndarray | None = None

    def _lengths(self) -> tuple[int, int, int]:
        """Return the elements that are sent and received, and how many of the latter are compared."""
        n, size, name, rank = self.count, self.size, self.name, self.rank
        if name in ("Scatter", "Reduce_scatter_block"):
            return n * size, n * size if self.in_place and name != "Scatter" else n, n
        if name in ("Gather", "Allgather"):
            return n, n * size, n * size
        if name == "Alltoall":
            return n * size, n * size, n * size
        counts = self.table[0]
        extent = _extent(counts, self.gaps)
        if name == "Scatterv":
            return extent, counts[rank], counts[rank]
        if name in ("Gatherv", "Allgatherv"):
            return counts[rank], extent, extent
        if name == "Reduce_scatter":
            return sum(counts), sum(counts) if self.in_place else counts[rank], counts[rank]
        if name in ("Alltoallv", "Alltoallw"):
            extent = _extent(self._received(), self.gaps)
            return _extent(self._sent(), self.gaps), extent, extent
        return n, n, 0 if name == "Exscan" and rank == 0 else n

    def _sent(self) -> list[int]:
        return self.table[self.rank] if not self.in_place else self._received()

    def _received(self) -> list[int]:
        """The counts of an all-to-all; in place, two ranks exchange blocks of the same length."""
        if self.in_place:
            return [self.table[min(self.rank, other)][max(self.rank, other)] for other in range(self.size)]
        return [row[self.rank] for row in self.table]

    def _array(self, length: int) -> np.ndarray:
        """Return an array of small numbers, whose sums and products are exact, inside a longer one."""
        numbers = np.random.default_rng(self.own.randrange(1 << 30)).integers(0, 3, length + 2 * EDGE)
        return numbers.astype(self.dtype)[EDGE:-EDGE]

    def _edges(self) -> np.ndarray:
        """Return a copy of what is around the receive buffer."""
        return np.concatenate([self.receive.base[:EDGE], self.receive.base[-EDGE:]])

    def arguments(self, plain: bool) -> list:
        """Return the arguments of the blocking method; plain, or each buffer in a form that this rank draws."""
        name, counts = self.name, self.table[0]

        def buffer(array, blocks=1):
            if array is None or array is MPI.IN_PLACE:
                return array
            count = array.size // blocks
            if plain:
                return [array, count, self.type]
            longer = array.base[EDGE:]
            forms = [array, array, [array, self.type], (array, self.type), [array, count, self.type]]
            forms += [[longer, count, self.type], [array, (count, 0), self.type], array.reshape(1, -1)]
            forms += [memoryview(array), [memoryview(array), self.type], array.reshape(1, -1).T]
            return self.own.choice(forms)

        def vector(array, counts):
            if array is None or array is MPI.IN_PLACE:
                return array
            starts = _starts(counts, self.gaps)
            if plain:
                return [array, counts, starts, self.type]
            counts = self.own.choice([list, np.array])(counts)  # mpi4py takes a tuple for counts and displacements
            forms = [
                [array, counts, starts, self.type],
                [array, (counts, starts), self.type],
                [array, (counts, starts)],
            ]
            if not self.gaps:
                forms += [[array, counts], [array, counts, self.type], (array, counts)]
            return self.own.choice(forms)

        def mixed(array, counts):
            if array is MPI.IN_PLACE:
                return array
            starts = [start * self.dtype.itemsize for start in _starts(counts, self.gaps)]
            return [array, counts, starts, [self.type] * self.size]

        send, receive = self.send, self.receive
        if self.mine_in_place:
            send, receive = (send, MPI.IN_PLACE) if name in ("Scatter", "Scatterv") else (MPI.IN_PLACE, receive)
        op, root = self.op, self.root
        if name == "Barrier":
            return []
        if name == "Bcast":
            return [buffer(receive), root]
        if name == "Scatter":
            return [buffer(send, self.size), buffer(receive), root]
        if name == "Gather":
            return [buffer(send), buffer(receive, self.size), root]
        if name == "Scatterv":
            return [vector(send, counts), buffer(receive), root]
        if name == "Gatherv":
            return [buffer(send), vector(receive, counts), root]
        if name == "Reduce":
            return [buffer(send), buffer(receive), op, root]
        if name == "Allgatherv":
            return [buffer(send), vector(receive, counts)]
        if name == "Allgather":
            return [buffer(send), buffer(receive, self.size)]
        if name == "Alltoall":
            return [buffer(send, self.size), buffer(receive, self.size)]
        if name == "Reduce_scatter_block":
            return [buffer(send, self.size), buffer(receive, self.size if self.in_place else 1), op]
        if name == "Alltoallv":
            return [vector(send, self._sent()), vector(receive, self._received())]
        if name == "Alltoallw":
            return [mixed(send, self._sent()), mixed(receive, self._received())]
        if name == "Reduce_scatter":
            if plain and self.in_place:  # MPICH may end the job
                send, receive = receive.copy(), receive[: counts[self.rank]]
            return [buffer(send), buffer(receive), counts, op]
        return [buffer(send), buffer(receive), op]

    def begin(self, on, method: str, algorithm: str | None) -> tuple:
        """Start the call, or make a persistent request; return the request and what it needs."""
        arguments = self.arguments(plain=False)
        return getattr(on, method)(*arguments, **({"algorithm": algorithm} if algorithm else {})), arguments

    def run(self, on, method: str, plain: bool, algorithm: str | None = None) -> np.ndarray | None:
        """Make the call; a plain one returns a copy of the result, and restores the buffer."""
        getattr(on, method)(*self.arguments(plain), **({"algorithm": algorithm} if algorithm else {}))
        if not plain or self.receive is None:
            return None
        result = self.receive.copy()
        self.reset()
        return result

    def reset(self) -> None:
        """Restore the receive buffer."""
        if self.receive is not None:
            self.receive[...] = self.first

    def changes(self) -> bool:
        """Whether the call changes what this rank receives."""
        return self.expected is not None and not _same(self.expected[: self.compared], self.first[: self.compared])

    def is_untouched(self) -> bool:
        """Whether the call has not begun."""
        return _same(self.receive[: self.compared], self.first[: self.compared])

    def check(self) -> None:
        """Compare the result with that of mpi4py."""
        if self.receive is None:
            return
        assert _same(self._edges(), self.edges), f"{self.name} wrote outside its receive buffer"
        got, expected = self.receive[: self.compared], self.expected[: self.compared]
        if not _same(got, expected):
            about = {key: value for key, value in vars(self).items() if not isinstance(value, np.ndarray)}
            raise AssertionError(f"{self.name}: {got[:20]} instead of {expected[:20]}: {about}")


def _starts(counts: list[int], gaps: bool) -> list[int]:
    return [sum(counts[:rank]) + 2 * rank * gaps for rank in range(len(counts))]


def _extent(counts: list[int], gaps: bool) -> int:
    return sum(counts) + 2 * gaps * len(counts)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a == b).all())

"""Collectives with blocks of different lengths, in several layouts and forms, compared with the native MPI ones."""

from contextlib import contextmanager
from itertools import accumulate

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.base.settings import configure
from pycoll.schedule.registry import PRIMITIVES

from .native import RANK, SIZE, WORLD

VARYING = ["scatterv", "gatherv", "allgatherv", "alltoallv"]
PAIRS = [(name, algorithm) for name in VARYING for algorithm in [*pycoll.algorithms(name), "native"]]
STYLES = ["side by side", "gaps", "any order"]
FORMS = ["four items", "tuple", "tuple and type", "counts"]
NUMBERS = np.random.default_rng(5)  # the same on all ranks
TABLES = {  # number of elements from rank i to rank j; primitives other than alltoallv use the first row
    "equal": np.full((SIZE, SIZE), 3),
    "drawn": NUMBERS.integers(0, 60, (SIZE, SIZE)),
    "zeros": NUMBERS.integers(0, 60, (SIZE, SIZE)) * NUMBERS.integers(0, 2, (SIZE, SIZE)),
    "nothing": np.zeros((SIZE, SIZE), int),
    "all on one": np.eye(SIZE, dtype=int)[[SIZE // 2] * SIZE] * 500,
}
FILL = 77


@contextmanager
def cut(segment):
    before = settings.SEGMENT, settings.PIPELINE
    configure(segment=segment, pipeline=segment)
    try:
        yield
    finally:
        configure(segment=before[0], pipeline=before[1])


def lay(counts, style, seed=0):
    """Return the displacements of the blocks, and the length of a buffer for them."""
    numbers = np.random.default_rng([seed, RANK])
    order = numbers.permutation(SIZE) if style == "any order" else np.arange(SIZE)
    gaps = np.zeros(SIZE + 1, int) if style == "side by side" else numbers.integers(0, 4, SIZE + 1)
    starts = accumulate((counts[i] + gap for i, gap in zip(order, gaps[1:])), initial=gaps[0])
    displs = np.zeros(SIZE, int)
    displs[order] = list(starts)[:SIZE]
    return displs.tolist(), int(sum(counts) + sum(gaps))


def spec(buffer, counts, displs, form):
    datatype = MPI.Datatype.fromcode(buffer.dtype.char)
    return {
        "four items": [buffer, counts, displs, datatype],
        "tuple": [buffer, (counts, displs)],
        "tuple and type": (buffer, (np.array(counts), tuple(displs)), datatype),
        "counts": [buffer, counts],
    }[form]


def check(primitive, algorithm, table, root=0, style="any order", form="four items", inside=False, dtype="f8"):
    style = "side by side" if form == "counts" else style
    kind = PRIMITIVES[primitive]
    if primitive == "alltoallv" and inside:
        table = np.triu(table) + np.triu(table, 1).T
    gives, takes = (table[RANK], table[:, RANK]) if primitive == "alltoallv" else (table[0], table[0])
    gives, takes = gives.tolist(), takes.tolist()
    at_root = not kind.rooted or RANK == root

    def side(all_blocks, counts, there, seed):
        if not there:
            return None, None
        if not all_blocks:
            buffer = np.full(counts[RANK], FILL, dtype)
            return buffer, buffer
        displs, total = lay(counts, style, seed)
        buffer = np.full(total, FILL, dtype)
        return buffer, spec(buffer, counts, displs, form)

    recv, recv_spec = side(kind.gives_all, takes, at_root or not kind.gives_all, 1)
    send, send_spec = side(kind.takes_all, gives, at_root or not kind.takes_all, 2)
    if inside and primitive == "alltoallv":
        displs, total = lay(takes, style, 1)
        send, send_spec = (buffer := np.full(total, FILL, dtype)), spec(buffer, gives, displs, form)
    if send is not None:
        send[...] = np.random.default_rng([3, RANK]).integers(0, 70, send.size)
    before = None if send is None else send.copy()
    options = {"root": root} if kind.rooted else {}

    getattr(WORLD, primitive.capitalize())(send_spec, recv_spec, **options)
    expected = None if recv is None else recv.copy()
    if recv is not None:
        recv[...] = FILL
    if inside and at_root:
        if primitive == "alltoallv":
            recv[...] = send
            gaps = np.ones(recv.size, bool)
            for count, displ in zip(takes, lay(takes, style, 1)[0]):
                gaps[displ : displ + count] = False
            expected[gaps] = send[gaps]
        elif primitive != "scatterv":
            start = lay(takes, style, 1)[0][RANK] if style != "side by side" else sum(takes[:RANK])
            recv[start : start + takes[RANK]] = send
        send_spec, recv_spec = (send_spec, MPI.IN_PLACE) if primitive == "scatterv" else (MPI.IN_PLACE, recv_spec)

    for _ in range(2):  # the second call uses everything that the first one cached
        result = getattr(pycoll, primitive)(send_spec, recv_spec, **options, algorithm=algorithm)
        if inside and primitive == "alltoallv":
            break
    if send is not None:
        np.testing.assert_array_equal(send, before)
    if expected is None or (inside and at_root and primitive == "scatterv"):
        assert result is None
    else:
        assert result is recv
        np.testing.assert_array_equal(recv, expected)


def compose(left, right, datatype):
    """Compose maps x -> a x + b, with a and b in the halves of an integer: associative, not commutative."""
    first, then = (np.frombuffer(buffer, "i4").reshape(-1, 2) for buffer in (left, right))
    a, b = first.T.copy()
    then[:, 1] += then[:, 0] * b
    then[:, 0] *= a


def wrong(error, pattern, primitive, *arguments, **options):
    with pytest.raises(error, match=pattern):
        getattr(pycoll, primitive)(*arguments, **options)

"""Every primitive, algorithm and operation, with several dtypes and counts, against the native MPI collectives."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.base.settings import configure
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.mpi.native import KINDS, MANY, OPERATIONS, RANK, SIZE, WORLD, assert_same, inputs, native

pytestmark = pytest.mark.mpi

MOVING = [
    (name, a)
    for name, p in PRIMITIVES.items()
    if not (p.reduces or p.varies or name == "barrier")
    for a in [*algorithms_of(name), "native"]
]
REDUCING = [(name, a) for name, p in PRIMITIVES.items() if p.reduces for a in [*algorithms_of(name), "native"]]
SEGMENT = 256  # bytes; 1009 elements span several segments
COUNTS = [0, SIZE - 1, 37] if MANY else sorted({0, 1, SIZE - 1, SIZE, 37, 1009})
SOME = ["sum", "max", "lxor", "avg"]
SOME_AND_MORE = [SOME, pytest.param([op for op in OPERATIONS if op not in SOME], marks=pytest.mark.slow)]
ROOTS = sorted({0, SIZE // 2, SIZE - 1})


@pytest.fixture(autouse=True)
def short_segments():
    before = settings.SEGMENT, settings.PIPELINE
    configure(segment=SEGMENT, pipeline=SEGMENT)
    yield
    configure(segment=before[0], pipeline=before[1])


def call(primitive, algorithm, send, op=None, root=0, recv=None):
    """Call pycoll with the arguments that the primitive takes."""
    function = getattr(pycoll, primitive)
    given = {"op": op} if op else {}
    given |= {"root": root} if PRIMITIVES[primitive].rooted else {}
    return function(send, recv, **given, algorithm=algorithm)


@pytest.mark.parametrize("ops", SOME_AND_MORE, ids=["some", "more"])
@pytest.mark.parametrize("primitive, algorithm", REDUCING)
def test_reductions(primitive, algorithm, ops):
    for op in ops:
        for dtype in ("int64", "float32", "complex128", "bool", *(() if MANY else ("int32", "uint8", "float64"))):
            if np.dtype(dtype).kind not in KINDS[op] or (op == "avg" and "scan" in primitive):
                continue
            for count in COUNTS if dtype in ("int64", "float32", "bool", "complex128") else [37]:
                check_reduction(primitive, algorithm, op, dtype, count, root=count % SIZE)


@pytest.mark.parametrize("primitive, algorithm", [pair for pair in REDUCING if pair[0] == "reduce"])
def test_reductions_at_every_root(primitive, algorithm):
    for root in range(SIZE):
        check_reduction(primitive, algorithm, "sum", "int64", 37, root)


def check_reduction(primitive, algorithm, op, dtype, count, root):
    root = root if PRIMITIVES[primitive].rooted else 0
    send = inputs(primitive, count, dtype, seed=count)
    before = send.copy()
    theirs = native(primitive, send, op, root)
    ours = call(primitive, algorithm, send, op, root)
    np.testing.assert_array_equal(send, before)
    check(ours, theirs, primitive, send, op)
    if primitive == "reduce" and RANK != root:
        inside = send
        again = call(primitive, algorithm, inside, op, root)
    else:
        inside = send.copy()
        again = call(primitive, algorithm, MPI.IN_PLACE, op, root, recv=inside)
    check(again, theirs, primitive, send, op)
    if primitive == "allreduce":
        for result in (ours, again):
            assert len(set(WORLD.allgather(result.tobytes()))) == 1, "not the same bits on all ranks"


def check(ours, theirs, primitive, send, op):
    # all ranks must call assert_same, which computes the bound collectively
    if theirs is None:
        assert ours is None or primitive == "exscan"  # in place, rank 0 returns its buffer
        theirs = ours = np.zeros_like(send)
    assert_same(ours, theirs, primitive, send, op)


@pytest.mark.parametrize("primitive, algorithm", MOVING)
def test_movements(primitive, algorithm):
    for dtype in ("int32", "float64", "complex64", "bool", "float16", "S5"):
        for count in COUNTS if dtype == "float64" else [37]:
            for root in ROOTS if PRIMITIVES[primitive].rooted else [0]:
                check_movement(primitive, algorithm, dtype, count, root)


def check_movement(primitive, algorithm, dtype, count, root):
    send = inputs(primitive, count, dtype, seed=count) if dtype != "S5" else text(primitive, count)
    theirs = native(primitive, send, root=root)
    if primitive == "bcast":
        buf = send.copy()
        assert pycoll.bcast(buf, root, algorithm=algorithm) is buf
        np.testing.assert_array_equal(buf, theirs)
        return
    before = send.copy()
    recv = np.empty(count, send.dtype) if primitive == "scatter" and RANK != root else None
    ours = call(primitive, algorithm, send, root=root, recv=recv)
    np.testing.assert_array_equal(send, before)
    if theirs is None:
        assert ours is None
    else:
        np.testing.assert_array_equal(ours.reshape(-1), theirs)
    check_movement_in_place(primitive, algorithm, send, theirs, root)


def check_movement_in_place(primitive, algorithm, send, theirs, root):
    if PRIMITIVES[primitive].rooted and RANK != root:
        call(
            primitive,
            algorithm,
            send,
            root=root,
            recv=np.empty(theirs.size, send.dtype) if theirs is not None else None,
        )
        return
    if primitive == "scatter":
        assert pycoll.scatter(send, MPI.IN_PLACE, root, algorithm=algorithm) is None
        return
    inside = np.zeros(theirs.size, send.dtype)
    if primitive == "alltoall":
        inside[...] = send
    else:
        inside[RANK * send.size : (RANK + 1) * send.size] = send
    assert call(primitive, algorithm, MPI.IN_PLACE, root=root, recv=inside) is inside
    np.testing.assert_array_equal(inside, theirs)


def text(primitive, count):
    total = count * (SIZE if PRIMITIVES[primitive].takes_all else 1)
    return np.array([f"{RANK}.{i % 99}" for i in range(total)], "S5")


@pytest.mark.parametrize("algorithm", algorithms_of("barrier"))
def test_barrier_waits_for_the_last(algorithm):
    """No rank leaves before all have arrived, on the clock shared by all processes of a host."""
    for last in ROOTS:
        if last == RANK:
            time.sleep(0.02)
        came = time.monotonic()
        pycoll.barrier(algorithm=algorithm)
        left = time.monotonic()
        assert min(WORLD.allgather(left)) >= max(WORLD.allgather(came))


@pytest.mark.parametrize("primitive", [name for name, p in PRIMITIVES.items() if name != "barrier" and not p.varies])
def test_above_every_eager_limit(primitive):
    """Blocks of several megabytes, for which schedules that depend on buffering would hang."""
    configure(segment=1 << 20, pipeline=2 << 20)
    count = (2 << 20) // 8 * (SIZE if PRIMITIVES[primitive].cuts else 1)
    send = inputs(primitive, count, "int64")
    op = "sum" if PRIMITIVES[primitive].reduces else None
    theirs = native(primitive, send, op)
    for algorithm in algorithms_of(primitive):
        if primitive == "bcast":
            ours = pycoll.bcast(send.copy(), algorithm=algorithm)
        else:
            recv = np.empty(count, send.dtype) if primitive == "scatter" and RANK else None
            ours = call(primitive, algorithm, send, op, recv=recv)
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            np.testing.assert_array_equal(ours.reshape(-1), theirs)

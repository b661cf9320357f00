"""Forms of buffers that programs pass to methods of mpi4py: after the first call, nearly all run by a plan."""

import array
import mmap
from dataclasses import replace

import mpi4py
import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll import core
from pycoll.api import comm_calls
from pycoll.runtime.attach import attach
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(bool(core.problem), reason="there is no compiled core")]

PAIR = np.dtype([("value", "f8"), ("index", "i4")], align=True)
RECORD = np.dtype([("a", "f8"), ("b", "i2")])


@pytest.fixture(scope="module")
def ours():
    made = pycoll.Comm(WORLD.Dup())
    channel = attach(made)
    if channel.mailboxes is None:
        pytest.skip("the compiled core is turned off")
    channel.facts = replace(channel.facts, native=True, host_memory=True)  # although the tests set PYCOLL_NATIVE=0
    yield made
    made.Free()


def numbers(call, dtype=float, length=4 * SIZE):
    """Return other numbers for each call and rank."""
    return (np.arange(length) * 7 + 3 * RANK + call).astype(dtype)


def add(left, right, datatype):
    np.frombuffer(right, float)[:] += np.frombuffer(left, float)


ADD = MPI.Op.Create(add, commute=True)
TWO = MPI.DOUBLE.Create_contiguous(2).Commit()
BLOCKS = [MPI.DOUBLE.Create_subarray([4, SIZE], [4, 1], [0, rank]).Commit() for rank in range(SIZE)]
GAPS = MPI.DOUBLE.Create_vector(SIZE, 2, 4).Commit()
COLUMN = MPI.DOUBLE.Create_vector(SIZE, 1, 2 * SIZE).Create_resized(0, 8).Commit()
PAIRS = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
NEXT = MPI.DOUBLE.Create_vector(2, 1, SIZE).Create_resized(0, 8).Commit()
ROWS = [MPI.DOUBLE.Create_subarray([SIZE, 4], [1, 4], [rank, 0]).Commit() for rank in range(SIZE)]


def typed_blocks(call):
    send, recv = numbers(call).reshape(4, SIZE), np.zeros((SIZE, 4))
    return ([send, BLOCKS], [recv, ROWS]), recv


def typed_blocks_with_counts(call):
    send, recv = numbers(call).reshape(4, SIZE), np.zeros((SIZE, 4))
    once, nowhere = [1] * SIZE, [0] * SIZE
    return ([send, (once, nowhere), BLOCKS], [recv, once, nowhere, ROWS]), recv


def pairs(call):
    send, recv = np.zeros(3, PAIR), np.zeros(3, PAIR)
    send["value"], send["index"] = (RANK * 5 + call) % 3, RANK
    return ([send, MPI.DOUBLE_INT], [recv, 3, MPI.DOUBLE_INT], MPI.MAXLOC), recv


def gaps_sent(call):
    buffer = numbers(call) if RANK == 0 else np.zeros(4 * SIZE)
    return ([buffer, 1, GAPS],), buffer


def gaps_received(call):
    recv = np.full((SIZE, 2 * SIZE), -1.0)
    return (numbers(call, length=SIZE * SIZE), [recv, 1, COLUMN]), recv


def gaps_gathered(call):
    recv = np.full((2, SIZE), -1.0) if RANK == 0 else None
    return ([numbers(call), 1, PAIRS], [recv, 1, NEXT] if RANK == 0 else None, 0), recv if RANK == 0 else np.zeros(1)


def reducing(make, op=MPI.SUM):
    def given(call):
        send, recv = make(numbers(call)), make(np.zeros(4 * SIZE))
        return (send, recv, op), recv

    return given


def sent(make, root=0):
    def given(call):
        buffer = make(numbers(call) if root == RANK else np.zeros(4 * SIZE))
        return (buffer, root), buffer[0] if isinstance(buffer, list) else buffer

    return given


class Labelled(np.ndarray):
    """An array with an attribute of its own."""

    label = "values"


def filled(memory, values):
    memory[:] = values.astype("u1").tobytes()
    return memory


FORMS = {
    "array.array": ("Allreduce", reducing(lambda a: array.array("d", a))),
    "memoryview": ("Allreduce", reducing(memoryview)),
    "memoryview of complex": ("Allreduce", reducing(lambda a: memoryview(a.astype(complex)))),
    "memoryview of bool": ("Allreduce", reducing(lambda a: memoryview(a > 9), MPI.LOR)),
    "matrix": ("Allreduce", reducing(lambda a: np.matrix(a))),
    "subclass": ("Bcast", sent(lambda a: [a.view(Labelled), a.size, MPI.DOUBLE])),
    "count of NumPy": ("Bcast", sent(lambda a: [a, np.int64(a.size - 1), MPI.DOUBLE])),
    "column order": ("Allreduce", reducing(lambda a: np.asfortranarray(a.reshape(2, -1)))),
    "half": ("Allreduce", reducing(lambda a: a.astype("f2"))),
    "user-defined operation": ("Allreduce", reducing(np.array, ADD)),
    "pairs": ("Allreduce", pairs),
    "bytearray": ("Bcast", sent(lambda a: bytearray(a.astype("u1")))),
    "mapped memory": ("Bcast", sent(lambda a: [filled(mmap.mmap(-1, a.size), a), a.size, MPI.BYTE])),
    "memory of MPI": ("Bcast", sent(lambda a: [filled(MPI.Alloc_mem(a.size), a), a.size, MPI.BYTE])),
    "bytes with a datatype": ("Bcast", sent(lambda a: [bytearray(a.astype("u1")), a.size, MPI.BYTE])),
    "string for a datatype": ("Bcast", sent(lambda a: [a, "d"])),
    "count and string": ("Bcast", sent(lambda a: [a, a.size - 1, "d"])),
    "contiguous datatype": ("Bcast", sent(lambda a: [a, TWO])),
    "count and datatype": ("Bcast", sent(lambda a: [a, a.size // 2 - 1, TWO])),
    "integer of NumPy": ("Bcast", sent(np.array, np.int64(SIZE - 1))),
    "records": ("Bcast", sent(lambda a: a.astype(RECORD))),
    "strings": ("Bcast", sent(lambda a: a.astype("U9"))),
    "dates": ("Bcast", sent(lambda a: a.astype("M8[s]"))),
    "gaps": ("Bcast", gaps_sent),
    "columns": ("Alltoall", gaps_received),
    "gaps on both sides": ("Gather", gaps_gathered),
    "datatypes of blocks": ("Alltoallw", typed_blocks),
    "datatypes of blocks, with counts": ("Alltoallw", typed_blocks_with_counts),
}
if mpi4py.__version__.startswith("4.0."):  # which does not know this dtype
    del FORMS["half"]


def plain(buffer):
    return np.asarray(buffer).tolist()


@pytest.mark.parametrize("method, given", FORMS.values(), ids=FORMS)
def test_later_calls_run_by_a_plan(ours, method, given, monkeypatch):
    for call in range(4):
        arguments, result = given(call)
        getattr(ours, method)(*arguments)
        found = plain(result)
        if "U" in np.asarray(result).dtype.str or (np.asarray(result).dtype.kind in "MV" and method == "Bcast"):
            expected = WORLD.bcast(found)  # mpi4py does not know these dtypes
        else:
            arguments, result = given(call)
            getattr(WORLD, method)(*arguments)
            expected = plain(result)
        assert found == expected, call
        if given not in (gaps_sent, gaps_received, gaps_gathered):  # those are packed in each call
            monkeypatch.setattr(comm_calls, "run_uncached", None)


def test_gaps_in_nonblocking_calls(ours):
    for call in range(4):
        (send, recv), result = gaps_received(call)
        expected = np.full_like(result, -1)
        WORLD.Alltoall(send, [expected, *recv[1:]])
        ours.Ialltoall(send, recv, algorithm="pairwise" if call < 2 else None).Wait()
        assert (result == expected).all()


def test_freed_datatypes_and_operations_are_refused_in_every_call(ours):
    datatype, op = MPI.DOUBLE.Create_contiguous(2).Commit(), MPI.Op.Create(add, commute=True)
    values, result = np.ones(4), np.zeros(4)
    blocks = [1] * SIZE, [16 * rank for rank in range(SIZE)], [datatype] * SIZE
    many = np.ones(2 * SIZE)
    for _ in range(3):
        ours.Bcast([values, datatype])
        ours.Allreduce(values, result, op)
        ours.Alltoallw([many, *blocks], [many.copy(), *blocks])
    datatype.Free()
    op.Free()
    for _ in range(3):
        with pytest.raises((MPI.Exception, ValueError)):
            ours.Bcast([values, datatype])
        with pytest.raises((MPI.Exception, ValueError)):
            ours.Allreduce(values, result, op)
        with pytest.raises((MPI.Exception, ValueError)):
            ours.Alltoallw([many, *blocks], [many.copy(), *blocks])


def test_memory_that_cannot_be_used_is_refused_in_every_call(ours):
    values = np.ones(4 * SIZE)
    ours.Allreduce(memoryview(values), memoryview(np.empty(4 * SIZE)))
    ours.Alltoallw([values.reshape(4, SIZE), BLOCKS], [np.empty((SIZE, 4)), ROWS])
    for _ in range(3):
        with pytest.raises((BufferError, ValueError)):
            ours.Allreduce(memoryview(values), memoryview(values.tobytes()).cast("d"))
        with pytest.raises(ValueError, match="bytes"):
            ours.Alltoallw([values.reshape(4, SIZE), BLOCKS], [np.empty(4 * SIZE - 1), ROWS])
        with pytest.raises(TypeError):
            ours.Bcast(np.array([None] * 4))


def test_dtypes_of_one_size_have_plans_of_their_own(ours):
    """Check a block of 24 bytes: three numbers, which two ranks cannot share, or elements of other sizes."""
    recv = np.empty(1, "V12")
    if RANK == 0:
        ours.Scatter(np.empty(SIZE, "V12"), recv)
        ours.Scatter(np.empty(SIZE, "V12"), recv)
    else:
        ours.Scatter(None, recv)
        ours.Scatter(None, recv)
    if RANK == 0 and SIZE > 1:
        with pytest.raises(ValueError, match="cannot infer count"):
            ours.Scatter(np.empty(1, f"V{12 * SIZE}"), recv)


@pytest.mark.parametrize("function", [pycoll.allreduce, "Allreduce"])
def test_tensors(ours, function, monkeypatch):
    torch = pytest.importorskip("torch")
    call = getattr(ours, function) if isinstance(function, str) else function
    for turn in range(3):
        send, recv = torch.full((5,), float(RANK + turn)), torch.zeros(5)
        found = call(send, recv)
        assert recv.tolist() == [sum(rank + turn for rank in range(SIZE))] * 5
        assert found is (None if isinstance(function, str) else recv)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        call(torch.ones(4), torch.zeros(8)[::2])
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        call(torch.ones(4), torch.zeros(4, requires_grad=True))

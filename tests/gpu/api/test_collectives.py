"""Every primitive and algorithm on buffers in GPU memory, compared with the same collective in host memory."""

import itertools
import threading

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.base.settings import configure
from pycoll.schedule.registry import PRIMITIVES
from tests.mpi.api import test_collectives
from tests.mpi.api.test_collectives import short_segments  # noqa: F401 (the fixture is for all tests here)
from tests.mpi.native import KINDS, OPERATIONS, RANK, SIZE, assert_same, inputs, native

pytestmark = pytest.mark.mpi

MOVING, REDUCING = (
    [pair for pair in pairs if pair[1] != "native"] for pairs in (test_collectives.MOVING, test_collectives.REDUCING)
)
DTYPES = ["int64", "float32", "complex128", "bool", "int8"]
MORE_DTYPES = ["int32", "uint8", "uint64", "float64", "complex64"]


def is_real(xp):
    """Return whether there is a real GPU, on which all combinations are tested."""
    return hasattr(xp, "__file__")


def produced(xp, host):
    """Return an array in GPU memory that is computed asynchronously."""
    array = xp.empty(host.shape, host.dtype)
    array[...] = xp.asarray(host)
    return array


def arguments(primitive, op=None, root=0):
    return ({"op": op} if op else {}) | ({"root": root} if PRIMITIVES[primitive].rooted else {})


def check(ours, theirs, primitive, send, op):
    if theirs is None:
        assert ours is None or primitive == "exscan"
        ours = theirs = np.zeros_like(send)
    else:
        assert not isinstance(ours, np.ndarray), "the result must stay on the GPU"
        ours = ours.get()
    assert_same(ours, theirs, primitive, send, op)


@pytest.mark.parametrize("primitive, algorithm", REDUCING)
def test_reductions(xp, way, primitive, algorithm):
    function = getattr(pycoll, primitive)
    for op in OPERATIONS if is_real(xp) or algorithm in ("ring", "tree") else ["sum", "avg"]:
        for dtype in [*DTYPES, *(MORE_DTYPES if is_real(xp) else [])]:
            if np.dtype(dtype).kind not in KINDS[op] or (op == "avg" and "scan" in primitive):
                continue
            for count in (0, 1, SIZE - 1, SIZE, 1009) if (dtype, op) == ("float32", "sum") else [37]:
                root = count % SIZE if PRIMITIVES[primitive].rooted else 0
                host = inputs(primitive, count, dtype, seed=count)
                theirs = native(primitive, host, op, root)
                send = produced(xp, host)
                ours = function(send, **arguments(primitive, op, root), algorithm=algorithm)
                check(ours, theirs, primitive, host, op)
                np.testing.assert_array_equal(send.get(), host)
                if primitive != "reduce" or RANK == root:
                    inside = produced(xp, host)
                    ours = function(MPI.IN_PLACE, inside, **arguments(primitive, op, root), algorithm=algorithm)
                else:
                    ours = function(send, **arguments(primitive, op, root), algorithm=algorithm)
                check(ours, theirs, primitive, host, op)


@pytest.mark.parametrize("primitive, algorithm", MOVING)
def test_movements(xp, way, primitive, algorithm):
    function = getattr(pycoll, primitive)
    cases = [("float64", count) for count in (0, 1, 37, 1009)] + [("complex64", 37), ("bool", 5), ("float16", 6)]
    for (dtype, count), root in itertools.product(cases, range(SIZE) if PRIMITIVES[primitive].rooted else [0]):
        host = inputs(primitive, count, dtype, seed=count)
        theirs = native(primitive, host, root=root)
        send = produced(xp, host)
        given = arguments(primitive, root=root)
        if primitive == "bcast":
            ours = function(send, **given, algorithm=algorithm)
            assert ours is send
        else:
            recv = xp.empty(count, dtype) if primitive == "scatter" and RANK != root else None
            ours = function(send, recv, **given, algorithm=algorithm)
        check(ours if theirs is not None else None, theirs, primitive, host, None)


@pytest.mark.parametrize("primitive", [name for name, p in PRIMITIVES.items() if p.reduces or name == "alltoall"])
def test_the_other_forms(xp, way, primitive):
    """Several nonblocking calls at once, and a persistent collective with new values in each start."""
    op = "sum" if PRIMITIVES[primitive].reduces else None
    hosts = [inputs(primitive, count, "int64", seed=count) for count in (5, 600, 37)]
    theirs = [native(primitive, host, op) for host in hosts]
    function = getattr(pycoll, f"i{primitive}")
    requests = [function(produced(xp, host), **arguments(primitive, op)) for host in hosts]
    for host, ours, expected in zip(hosts, pycoll.waitall(requests), theirs):
        check(ours, expected, primitive, host, op)
    send = xp.empty(hosts[1].shape, "int64")
    with getattr(pycoll, f"{primitive}_init")(send, **arguments(primitive, op)) as persistent:
        for factor in (1, 2, 3):
            send[...] = xp.asarray(hosts[1] * factor)
            persistent.Start()
            ours = persistent.wait()
            expected = None if theirs[1] is None else theirs[1] * factor
            check(ours, expected, primitive, hosts[1], op)
        persistent.Start()


def test_repeated_calls_on_the_same_arrays(xp, way):
    send, recv = xp.empty(500, "float32"), xp.empty(500, "float32")
    for step in range(5):
        send[...] = xp.asarray(np.full(500, RANK + step, "float32"))
        assert pycoll.allreduce(send, recv) is recv
        expected = sum(range(SIZE)) + SIZE * step
        np.testing.assert_array_equal(recv.get(), np.full(500, expected, "float32"))


def test_on_other_streams(xp, way):
    """Work on the current stream completes before its data is sent, and the result before the call returns."""
    per_thread = [xp.cuda.Stream.ptds] if hasattr(xp.cuda.Stream, "ptds") else []
    for stream in (xp.cuda.Stream(), xp.cuda.Stream(non_blocking=True), *per_thread):
        with stream:
            send = produced(xp, np.arange(700.0) + RANK)
            result = pycoll.allreduce(send)
            doubled = xp.empty(700)
            xp.add(result, result, out=doubled)
            np.testing.assert_array_equal(doubled.get(), 2 * (np.arange(700.0) * SIZE + sum(range(SIZE))))


def test_the_current_stream_stays(xp, way):
    """The current stream is kept even if it was set by `use`, which a with block would not restore."""
    before, stream = xp.cuda.get_current_stream(), xp.cuda.Stream(non_blocking=True)
    stream.use()
    try:
        result = pycoll.allreduce(produced(xp, np.arange(700.0)))
        assert xp.cuda.get_current_stream().ptr == stream.ptr
        np.testing.assert_array_equal(pycoll.allreduce(produced(xp, np.arange(9.0)), op="avg").get(), np.arange(9.0))
        np.testing.assert_array_equal(result.get(), np.arange(700.0) * SIZE)
    finally:
        before.use()


def test_in_another_thread(xp, way):
    """The current stream of the calling thread is used."""
    results = []

    def work():
        with xp.cuda.Stream(non_blocking=True):
            results.append(pycoll.allreduce(produced(xp, np.arange(700.0) + RANK)).get())

    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        pytest.skip("MPI was started without threads")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(results[0], np.arange(700.0) * SIZE + sum(range(SIZE)))


def test_two_streams_at_once(xp, way):
    streams = [xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    requests, results = [], []
    for number, stream in enumerate(streams):
        with stream:
            results.append(produced(xp, np.full(600, RANK + number)))
            requests.append(pycoll.iallreduce(MPI.IN_PLACE, results[-1]))
    pycoll.waitall(requests[::-1])
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.get(), np.full(600, sum(range(SIZE)) + SIZE * number))


def test_gaps_are_packed_on_the_gpu(xp, way):
    matrix = produced(xp, np.arange(40.0).reshape(5, 8) + RANK)
    with pycoll.traffic() as sent:
        ours = pycoll.allgather(matrix[:, ::2])
    theirs = np.stack([(np.arange(40.0).reshape(5, 8) + rank)[:, ::2] for rank in range(SIZE)])
    np.testing.assert_array_equal(ours.get(), theirs)
    if way == "direct":
        assert sent.staged == 0
    with pytest.raises(ValueError, match="recvbuf is not C-contiguous"):
        pycoll.allreduce(matrix, matrix.T)


def test_persistent_ones_pack_anew(xp, way):
    matrix = xp.empty((5, 8))
    with pycoll.allreduce_init(matrix[:, ::2]) as persistent:
        for step in range(3):
            matrix[...] = xp.asarray(np.arange(40.0).reshape(5, 8) + RANK + step)
            persistent.Start()
            expected = np.arange(40.0).reshape(5, 8)[:, ::2] * SIZE + sum(range(SIZE)) + SIZE * step
            np.testing.assert_array_equal(persistent.wait().get(), expected)
        persistent.Start()


def test_lists_travel_together(xp, way):
    arrays = [produced(xp, np.arange(n) + RANK) for n in (3, 0, 40)]
    assert pycoll.allreduce(arrays) is arrays
    for array in arrays:
        np.testing.assert_array_equal(array.get(), np.arange(array.size) * SIZE + sum(range(SIZE)))
    pycoll.bcast(arrays, SIZE - 1)
    if SIZE > 1:
        with pytest.raises(TypeError, match="different memories"):
            pycoll.allreduce([arrays[0], np.arange(3)])
    mixed = [np.arange(3, dtype="int8"), np.arange(40.0).reshape(5, 8)]
    arrays = [produced(xp, array) for array in mixed] if RANK % 2 else [array.copy() for array in mixed]
    given = [arrays[0], arrays[1][:, ::2]]
    pycoll.bcast(given)
    for array, expected in zip(given, (mixed[0], mixed[1][:, ::2])):
        np.testing.assert_array_equal(array.get() if RANK % 2 else array, expected)


def test_counters_show_no_staging(xp, way):
    send = produced(xp, np.arange(1000.0))
    with pycoll.traffic() as sent:
        pycoll.allreduce(send)
    assert sent.staged == (0 if way == "direct" or (SIZE == 1 and not sent.staged) else 2 * send.nbytes)


def test_mpis_own_is_refused(xp, way):
    with pytest.raises(TypeError, match=r"native.*host memory"):
        pycoll.allreduce(xp.zeros(3, "float32"), algorithm="native")


@pytest.mark.parametrize("op, choose", [(MPI.MINLOC, min), (MPI.MAXLOC, max)])
def test_pairs(xp, way, op, choose):
    """Methods of the communicator reduce raw memory of an MPI pair type."""
    comm = pycoll.Comm(MPI.COMM_WORLD)
    pairs = np.zeros(50, np.dtype([("value", "f4"), ("index", "i4")], align=True))
    everyone = [np.random.default_rng(rank).choice([0, 1, 2, np.nan], 50) for rank in range(SIZE)]
    pairs["value"], pairs["index"] = everyone[RANK], RANK
    send, recv = produced(xp, pairs.view(np.uint8)), xp.empty(400, np.uint8)
    comm.Allreduce([send, MPI.FLOAT_INT], [recv, MPI.FLOAT_INT], op)
    best = getattr(np, choose.__name__)(np.stack(everyone), axis=0)
    result = recv.get().view(pairs.dtype)
    np.testing.assert_array_equal(result["value"], best)
    equal = [(values == best) | (np.isnan(values) & np.isnan(best)) for values in everyone]
    np.testing.assert_array_equal(result["index"], np.argmax(equal, axis=0))


def test_what_a_gpu_cannot_combine_goes_by_the_host(xp, way):
    """User-defined operations, and dtypes that CuPy cannot combine, are staged through host memory."""

    def larger(left, right, datatype):
        a, b = np.frombuffer(left, "i8"), np.frombuffer(right, "i8")
        b[...] = np.maximum(a, b)

    op = MPI.Op.Create(larger, commute=True)
    host = np.arange(100) * (RANK + 1)
    result = pycoll.allreduce(produced(xp, host), op=op)
    np.testing.assert_array_equal(result.get(), np.arange(100) * SIZE)
    op.Free()
    wide = host.astype(np.longdouble)
    memory, result = produced(xp, wide.view(np.uint8)), xp.empty(wide.nbytes, np.uint8)
    pycoll.allreduce(memory.view(wide.dtype), result.view(wide.dtype))
    np.testing.assert_array_equal(result.get().view(wide.dtype), np.arange(100) * sum(range(1, SIZE + 1)))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(xp, way, name):
    """Half-precision reductions of numbers so small that sums are exact."""
    dtype = np.dtype(name if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    host = (np.arange(90) % 8).astype(dtype)
    for algorithm in pycoll.algorithms("allreduce"):
        for op, expected in (("sum", host.astype("f4") * SIZE), ("max", host.astype("f4")), ("avg", host.astype("f4"))):
            result = pycoll.allreduce(produced(xp, host), op=op, algorithm=algorithm)
            assert result.dtype == dtype
            np.testing.assert_array_equal(result.get().astype("f4"), expected)


@pytest.mark.parametrize("primitive", [name for name, p in PRIMITIVES.items() if name != "barrier" and not p.varies])
def test_large(xp, way, primitive):
    """Vectors of several long segments."""
    configure(segment=1 << 20, pipeline=1 << 19)
    count = (1 << 20) // 8 * (3 if PRIMITIVES[primitive].cuts else 1) + 5
    op = "sum" if PRIMITIVES[primitive].reduces else None
    host = inputs(primitive, count, "int64")
    theirs = native(primitive, host, op)
    send = produced(xp, host)
    if primitive == "bcast":
        ours = pycoll.bcast(send)
    else:
        recv = xp.empty(count, "int64") if primitive == "scatter" and RANK else None
        ours = getattr(pycoll, primitive)(send, recv, **arguments(primitive, op))
    check(ours if theirs is not None else None, theirs, primitive, host, op)


def test_short_buffers_are_staged_on_ranks_that_choose_so(xp, way, monkeypatch):
    monkeypatch.setattr(settings, "DEVICE_STAGED", 800 if RANK == 0 else 0)
    comm = MPI.COMM_WORLD.Dup()
    for count in (100, 101):
        send = produced(xp, np.arange(float(count)))
        with pycoll.traffic() as sent:
            result = pycoll.allreduce(send, comm=comm)
        np.testing.assert_array_equal(result.get(), np.arange(float(count)) * SIZE)
        if way == "direct":
            assert (sent.staged > 0) == (RANK == 0 and count == 100)
    comm.Free()


def test_longer_segments_in_gpu_memory(xp, way):
    """Reductions of GPU memory have fewer messages; a broadcast has the same, whatever the memory of each rank."""
    comm = MPI.COMM_WORLD.Dup()
    pycoll.attach(comm)
    configure(segment=1 << 12, device_segment=1 << 16)
    host, messages = np.arange(1 << 15) + RANK, {}
    expected = np.arange(1 << 15) * SIZE + sum(range(SIZE))
    for place, array in (("host", host), ("GPU", produced(xp, host))):
        with pycoll.traffic() as sent:
            result = pycoll.allreduce(array, algorithm="ring", comm=comm)
        messages[place] = sent.messages
        np.testing.assert_array_equal(result if place == "host" else result.get(), expected)
    assert SIZE == 1 or messages["GPU"] * (8 if way == "direct" else 1) <= messages["host"]
    buf = produced(xp, host) if RANK % 2 else host.copy()
    pycoll.bcast(buf, comm=comm)
    np.testing.assert_array_equal(buf.get() if RANK % 2 else buf, np.arange(1 << 15))
    configure(device_segment=None)
    comm.Free()

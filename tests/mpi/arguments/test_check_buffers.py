"""Allocated results, buffers of all kinds, and errors that are raised before anything is sent."""

import array
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.arguments.device_arrays import gpu_possible
from pycoll.base import settings
from pycoll.base.settings import configure
from pycoll.schedule.registry import PRIMITIVES, algorithms_of
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
TWO = np.arange(2.0) + RANK
PER_RANK = np.arange(2.0 * SIZE)


def test_results_are_allocated_and_returned():
    assert pycoll.allreduce(np.ones((2, 3))).shape == (2, 3)
    assert pycoll.allgather(np.ones((2, 3))).shape == (SIZE, 2, 3)
    assert pycoll.alltoall(np.ones((SIZE, 3))).shape == (SIZE, 3)
    assert pycoll.reduce_scatter(np.ones((2 * SIZE, 3))).shape == (2, 3)
    assert pycoll.reduce_scatter(np.ones(2 * SIZE)).shape == (2,)
    gathered = pycoll.gather(np.ones((2, 3)), root=SIZE - 1)
    assert gathered.shape == (SIZE, 2, 3) if RANK == SIZE - 1 else gathered is None
    reduced = pycoll.reduce(np.ones((2, 3)), root=SIZE - 1)
    assert reduced.shape == (2, 3) if RANK == SIZE - 1 else reduced is None
    scattered = pycoll.scatter(np.ones((SIZE, 3)), None if RANK == 0 else np.empty(3))
    assert scattered.shape == (3,)


def test_the_given_buffer_is_what_comes_back():
    recv = np.empty(2)
    assert pycoll.allreduce(TWO, recv) is recv
    assert pycoll.bcast(recv) is recv
    everything = np.empty((SIZE, 2))
    assert pycoll.allgather(TWO, everything) is everything
    again = pycoll.gather(TWO, everything)
    assert again is everything if RANK == 0 else again is None


def test_all_public_names_are_there():
    for name in pycoll.__all__:
        assert getattr(pycoll, name)


def test_names_and_handles_of_operations():
    for name, handle in (("max", MPI.MAX), ("MAX", MPI.MAX), ("sum", MPI.SUM)):
        np.testing.assert_array_equal(pycoll.allreduce(TWO, op=name), pycoll.allreduce(TWO, op=handle))
    np.testing.assert_allclose(pycoll.allreduce(TWO, op=pycoll.AVG), np.arange(2.0) + (SIZE - 1) / 2)


def test_send_buffers_with_gaps_are_packed():
    grid = np.arange(24.0).reshape(4, 6) + RANK
    for _ in range(3):
        np.testing.assert_array_equal(pycoll.allreduce(grid[::2, ::3]), pycoll.allreduce(grid)[::2, ::3])
        np.testing.assert_array_equal(pycoll.allreduce(grid.T), pycoll.allreduce(grid).T)
        recv = np.empty((2, 2))
        pycoll.allreduce(grid[::2, ::3], recv)
        np.testing.assert_array_equal(recv, pycoll.allreduce(grid)[::2, ::3])
        grid += 1.0


def test_a_broadcast_refuses_gaps_on_all_ranks():
    """No rank goes on alone, so that the next broadcast gets its own message."""
    grid = np.arange(24.0).reshape(4, 6)
    for turn in range(3):
        with pytest.raises(ValueError, match=r"buf is not C-contiguous \(shape \(4,\), strides \(48,\)\)"):
            pycoll.bcast(grid[:, 1])
        assert (pycoll.bcast(np.full(4, turn if RANK == 0 else -1)) == turn).all()


def test_other_objects_with_a_buffer():
    for _ in range(2):
        numbers = array.array("d", [1.0, 2.0])
        result = array.array("d", [0.0, 0.0])
        assert pycoll.allreduce(numbers, result) is result
        assert list(result) == [SIZE, 2.0 * SIZE]
        text = bytearray(b"hello" if RANK == 0 else b"?????")
        pycoll.bcast(text)
        assert text == b"hello"
        assert pycoll.allreduce(np.float64(2.0)) == 2.0 * SIZE
        np.testing.assert_array_equal(pycoll.allreduce(memoryview(numbers)), [SIZE, 2.0 * SIZE])


def test_a_read_only_root_can_broadcast():
    buf = np.arange(3.0)
    buf.flags.writeable = RANK != 0
    np.testing.assert_array_equal(pycoll.bcast(buf), [0.0, 1.0, 2.0])


def test_odd_alignment():
    odd = np.zeros(41, np.uint8)[1:].view("f8")
    odd[:] = RANK
    np.testing.assert_array_equal(pycoll.allreduce(odd), np.full(5, sum(range(SIZE))))


def test_half_precision_has_no_mpi_type_and_is_reduced_all_the_same():
    np.testing.assert_array_equal(pycoll.allreduce(np.full(5, RANK, np.float16)), np.full(5, sum(range(SIZE)), "f2"))


@pytest.fixture
def affine():
    """Yield the composition of maps x -> a x + b, with a and b in the halves of an integer.

    It is associative, but not commutative.
    """

    def compose(left, right, datatype):
        first, then = (np.frombuffer(buffer, "i4").reshape(-1, 2) for buffer in (left, right))
        a, b = first.T.copy()
        then[:, 1] += then[:, 0] * b
        then[:, 0] *= a

    op = MPI.Op.Create(compose, commute=False)
    yield op
    op.Free()


def test_operations_of_the_user_keep_rank_order(affine):
    count = 200
    maps = np.random.default_rng(RANK).integers(-3, 4, (SIZE * count, 2)).astype("i4")
    packed = maps.view("i8").reshape(-1)
    a, b = np.ones(SIZE * count, "i4"), np.zeros(SIZE * count, "i4")
    for theirs in pycoll.allgather(maps):
        a, b = theirs[:, 0] * a, theirs[:, 0] * b + theirs[:, 1]
    expected = np.stack([a, b], axis=1).copy().view("i8").reshape(-1)
    before = settings.SEGMENT, settings.PIPELINE
    for segment in (64, before[0]):
        configure(segment=segment, pipeline=segment)
        for algorithm in [None, *(a.name for a in algorithms_of("allreduce").values() if a.ordered)]:
            np.testing.assert_array_equal(pycoll.allreduce(packed, op=affine, algorithm=algorithm), expected)
        for root in range(SIZE):
            result = pycoll.reduce(packed, op=affine, root=root)
            assert RANK != root or (result == expected).all()
        mine = slice(RANK * count, (RANK + 1) * count)
        np.testing.assert_array_equal(pycoll.reduce_scatter(packed, op=affine), expected[mine])
    configure(segment=before[0], pipeline=before[1])


def test_operations_of_the_user_refused(affine):
    with pytest.raises(ValueError, match=r"does not keep rank order.*naive, tree, .*recursive_doubling"):
        pycoll.allreduce(np.zeros(4, "i8"), op=affine, algorithm="ring")
    with pytest.raises(TypeError, match="MPI has no type for dtype"):
        pycoll.allreduce(np.zeros(4, "M8[s]"), op=affine)


def test_floating_point_errors_leave_nobody_waiting():
    """Floating-point errors are raised only after the collective has completed."""
    values = np.array([np.inf if RANK == 0 else -np.inf, 1.0])
    for _ in range(2):
        for algorithm in pycoll.algorithms("allreduce"):
            result = np.empty(2)
            try:
                with np.errstate(all="raise"):
                    pycoll.allreduce(values, result, algorithm=algorithm)
                assert SIZE == 1 or np.isnan(result[0])
            except FloatingPointError:
                assert SIZE > 1
            assert result[1] == SIZE
    with np.errstate(all="ignore"):
        assert pycoll.allreduce(np.ones(3))[0] == SIZE


def test_complex_products_are_written_though_errors_are_raised():
    """Complex products are written even if NumPy raises errors; otherwise other ranks would receive garbage."""
    values = np.full(2 * SIZE, np.inf + 0j if RANK == 0 else 0j)
    for algorithm in pycoll.algorithms("allreduce"):
        result = np.ones(2 * SIZE, complex)
        with np.errstate(all="raise"):
            pycoll.allreduce(values, result, op="prod", algorithm=algorithm)
        assert SIZE == 1 or np.isnan(result).all()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_subclasses_of_arrays():
    matrix = np.matrix(np.ones((2, SIZE)))
    np.testing.assert_array_equal(pycoll.reduce_scatter(MPI.IN_PLACE, matrix), [SIZE, SIZE])
    with pytest.raises(ValueError, match="read-only"):
        pycoll.allreduce(np.ones(1), np.float64(7))


def test_what_does_not_count_is_not_looked_at():
    garbage = [object(), np.arange(3)] if RANK else np.arange(2.0 * SIZE)
    np.testing.assert_array_equal(pycoll.scatter(garbage, np.empty(2)), [2 * RANK, 2 * RANK + 1])
    assert pycoll.gather(TWO, np.empty(7) if RANK else None) is None or RANK == 0


@pytest.mark.parametrize("primitive", [name for name, p in PRIMITIVES.items() if not p.varies])
def test_unknown_algorithms(primitive):
    arguments = {"barrier": []}.get(primitive, [PER_RANK.copy()])
    if primitive == "scatter":
        arguments.append(np.empty(2))
    with pytest.raises(ValueError, match=r"algorithm='fastest' is not one of .*naive, tree, ring"):
        getattr(pycoll, primitive)(*arguments, algorithm="fastest")


def wrong(error, pattern, function, *arguments, **options):
    with pytest.raises(error, match=pattern):
        function(*arguments, **options)


def test_wrong_roots():
    for root in (-1, SIZE):
        wrong(ValueError, rf"root={root!r} is not a rank of .* size {SIZE}", pycoll.bcast, TWO.copy(), root)
        wrong(ValueError, "root=", pycoll.gather, TWO, root=root)
        wrong(MPI.Exception, "root=", pycoll.gather, TWO, root=root)
    for root in (1.0, None):
        wrong(TypeError, f"root={root!r} is not an integer", pycoll.bcast, TWO.copy(), root)


def test_wrong_dtypes():
    wrong(TypeError, "sendbuf has dtype float64, recvbuf has dtype float32", pycoll.allreduce, TWO, np.empty(2, "f4"))
    wrong(TypeError, "dtype object", pycoll.allreduce, np.array([None, 1]))
    convert = r"do not pickle Python objects \(use pycoll\.bcast_object and the like, or numpy\.array\)$"
    wrong(TypeError, rf"sendbuf must be an array or another buffer, not list; .* {convert}", pycoll.reduce, [1.0, 2.0])
    wrong(TypeError, rf"sendbuf\[0\] must be an array or .*, not float; .* {convert}", pycoll.allreduce, [1.0, 2.0])
    wrong(TypeError, rf"not list; .* {convert}", pycoll.reduce, list(range(1000)))
    wrong(TypeError, rf"sendbuf must be .* {convert}", pycoll.allgather, [[1, 2], [3, 4]])
    for given in ([np.ones(2), MPI.DOUBLE], [np.ones(2), 2, MPI.DOUBLE]):
        wrong(TypeError, "to pass an MPI datatype with a buffer, use pycoll.Comm$", pycoll.allgather, given)
    wrong(TypeError, rf"sendbuf must be an array or another buffer, not float; .* {convert}", pycoll.allreduce, 3.0)
    wrong(TypeError, rf"buf must be an array or another buffer, not dict; .* {convert}", pycoll.bcast, {"a": 1})
    wrong(TypeError, "sendbuf must be an array", pycoll.allreduce, None)
    wrong(TypeError, "elements have no bytes", pycoll.allgather, np.zeros(3, "V0"))


@pytest.mark.parametrize("name", ["allreduce", "reduce", "scan", "gather", "allgather", "alltoall", "scatterv"])
def test_arguments_in_the_place_of_the_receive_buffer(name):
    function, vector = getattr(pycoll, name), np.zeros(2 * SIZE)
    for argument, keyword in ((WORLD, "comm="), (MPI.SUM, "op="), ("sum", "op="), ("ring", "algorithm="), (0, "root=")):
        pattern = f"recvbuf must be an array .*, not {type(argument).__name__};.* {keyword}"
        wrong(TypeError, pattern, function, vector, argument)
    wrong(TypeError, "recvbuf must be .* comm=", pycoll.allreduce, [vector], WORLD)


def test_a_communicator_in_the_place_of_another_argument():
    for function in (pycoll.bcast, partial(pycoll.gather, TWO), partial(pycoll.send, TWO), partial(pycoll.empty, 2)):
        wrong(TypeError, "not .*; pass a communicator with comm=", function, *[TWO] * (function is pycoll.bcast), WORLD)
    wrong(TypeError, "op must be .* comm=", pycoll.allreduce, TWO, None, WORLD)


def test_wrong_receive_buffers():
    wrong(ValueError, "recvbuf has 1 elements, but 2", pycoll.allreduce, TWO, np.empty(1))
    wrong(ValueError, f"recvbuf has 3 elements, but {2 * SIZE}", pycoll.allgather, TWO, np.empty(3))
    readonly = np.empty(2)
    readonly.flags.writeable = False
    wrong(ValueError, "recvbuf is read-only", pycoll.allreduce, TWO, readonly)
    wrong(ValueError, "recvbuf is not C-contiguous", pycoll.allreduce, TWO, np.empty(4)[::2])
    wrong(ValueError, "buf is not C-contiguous", pycoll.bcast, np.empty(4)[::2], (RANK + 1) % SIZE) if SIZE > 1 else 0
    both = np.zeros(3)
    wrong(ValueError, "overlap.*IN_PLACE", pycoll.allreduce, both[:2], both[1:])


def test_a_readonly_view_made_after_a_call_is_still_refused():
    recv = np.empty(2)
    pycoll.allreduce(TWO, recv)
    view = recv[:]
    view.flags.writeable = False
    wrong(ValueError, "read-only", pycoll.allreduce, TWO, view)


def test_wrong_operations():
    wrong(ValueError, "op='mean' is not one of: sum, ", pycoll.allreduce, TWO, op="mean")
    wrong(TypeError, "op must be an MPI.Op or a name", pycoll.allreduce, TWO, op=sum)
    wrong(TypeError, "BAND is not defined for dtype float64", pycoll.allreduce, TWO, op=MPI.BAND)
    wrong(TypeError, "AVG is not defined for dtype int64.*floating point", pycoll.allreduce, np.arange(2), op="avg")
    wrong(TypeError, "MAX is not defined for dtype complex128", pycoll.allreduce, TWO + 1j, op=MPI.MAX)
    wrong(TypeError, "SUM is not defined for dtype bool; use LAND, LOR or LXOR, or", pycoll.allreduce, TWO > 0)
    wrong(TypeError, "AVG is not defined for dtype bool; convert to floating", pycoll.allreduce, TWO > 0, op="avg")
    wrong(MPI.Exception, "SUM is not defined for dtype bool", pycoll.allreduce, TWO > 0)
    wrong(ValueError, "op=", pycoll.allreduce, TWO, op=MPI.REPLACE)


def test_wrong_counts():
    odd = np.zeros(2 * SIZE + 1)
    if SIZE > 1:
        for function in (pycoll.alltoall, pycoll.reduce_scatter):
            wrong(ValueError, f"sendbuf has {2 * SIZE + 1} elements, .* {SIZE} ranks", function, odd)
    if RANK != 0:
        wrong(TypeError, "recvbuf=None.*other than the root", pycoll.scatter, None)


def test_wrong_communicators():
    wrong(TypeError, "comm is MPI.COMM_NULL: it has been freed", pycoll.allreduce, TWO, comm=MPI.COMM_NULL)
    wrong(TypeError, "comm must be an intracommunicator", pycoll.allreduce, TWO, comm="world")


def test_wrong_places():
    wrong(ValueError, "recvbuf=MPI.IN_PLACE is not allowed", pycoll.allreduce, TWO, MPI.IN_PLACE)
    wrong(TypeError, "IN_PLACE requires a receive buffer", pycoll.allreduce, MPI.IN_PLACE)
    if RANK != 0:
        wrong(ValueError, "sendbuf=MPI.IN_PLACE is not allowed", pycoll.gather, MPI.IN_PLACE)


def test_after_all_these_errors_the_world_is_in_order():
    np.testing.assert_array_equal(pycoll.allreduce(np.ones(3)), np.full(3, SIZE))
    assert WORLD.allreduce(1) == SIZE


def test_explain_needs_a_number_of_bytes():
    with pytest.raises(TypeError, match="nbytes must be an integer, not '8'"):
        pycoll.explain("allreduce", nbytes="8")


def test_select_device_without_cupy():
    if gpu_possible():
        pytest.skip("there is CuPy, or the stand-in for it")
    with pytest.raises(ImportError, match="select_device needs the package CuPy"):
        pycoll.select_device()

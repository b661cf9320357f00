"""Objects other than NumPy arrays that are used without a copy, and lists of arrays that are sent as one vector."""

import array
import sys

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.arguments.arrays import as_array
from tests.mpi.native import RANK, SIZE, WORLD

from .test_ops import COUNT, drawn

pytestmark = pytest.mark.mpi

TOTAL = sum(range(SIZE))


class Interface:
    """An object with `__array_interface__` only."""

    def __init__(self, data):
        self.data = data
        self.__array_interface__ = data.__array_interface__


class DLPack:
    """An object with DLPack only, in its newest or its first version."""

    def __init__(self, data, first=False):
        self.data, self.first = data, first

    def __dlpack__(self, **options):
        if self.first and options.keys() - {"stream"}:
            raise TypeError("unexpected keyword argument")
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


KINDS = {
    "interface": Interface,
    "DLPack": DLPack,
    "memoryview": memoryview,
    "array": lambda data: array.array("d", data),
    "bytearray": lambda data: bytearray(data.tobytes()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_received_in_place(kind):
    """Every call writes the result to the memory of the object, and returns the object itself."""
    wrap = KINDS[kind]
    send, recv = wrap(np.arange(3.0) + RANK), wrap(np.zeros(3 * SIZE))

    def content(data):
        return np.frombuffer(getattr(data, "data", data))

    for _ in range(2):
        assert pycoll.allgather(send, recv) is recv
        np.testing.assert_array_equal(content(recv).reshape(SIZE, 3), np.arange(3) + np.arange(SIZE)[:, None])
        assert pycoll.bcast(recv, SIZE - 1) is recv
        assert pycoll.allgatherv(send, [recv, [24 if kind == "bytearray" else 3] * SIZE]) is recv
        content(recv)[...] = RANK
        if kind != "bytearray":  # its elements are bytes, not float64
            assert pycoll.allreduce(MPI.IN_PLACE, recv) is recv
            assert (content(recv) == TOTAL).all()


def test_the_first_version_of_dlpack():
    """It cannot say that memory is read-only, so such an object may be written to."""
    sent, received = DLPack(np.arange(3.0), first=True), DLPack(np.zeros(3), first=True)
    for call in (pycoll.allreduce, pycoll.scan, pycoll.Comm(WORLD).Allreduce):
        call(sent, received)
        np.testing.assert_array_equal(received.data, np.arange(3) * (RANK + 1 if call is pycoll.scan else SIZE))
    assert pycoll.allreduce(MPI.IN_PLACE, received) is received
    assert pycoll.bcast(received) is received
    np.testing.assert_array_equal(received.data, np.arange(3) * SIZE * SIZE)
    with pytest.raises(ValueError, match="recvbuf is not C-contiguous"):
        pycoll.allreduce(np.ones((2, 3)), DLPack(np.ones((3, 2)).T, first=True))


def test_the_first_version_of_dlpack_of_a_read_only_array():
    """An object that also has `__array__`, as arrays of JAX have it, shows there that it is read-only."""

    class Immutable(DLPack):
        def __array__(self, dtype=None, copy=None):
            view = self.data[:]
            view.flags.writeable = False
            return view

    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.allreduce(np.ones(3), Immutable(np.ones(3), first=True))


@pytest.mark.parametrize("wrap", [Interface, DLPack, memoryview])
def test_read_only_ones_are_refused(wrap):
    data = np.ones(3)
    data.flags.writeable = False
    recv = wrap(data)
    np.testing.assert_array_equal(pycoll.allreduce(recv), np.full(3, SIZE))
    for call in (lambda: pycoll.allreduce(np.ones(3), recv), lambda: pycoll.allreduce(MPI.IN_PLACE, recv)):
        with pytest.raises(ValueError, match="recvbuf is read-only"):
            call()
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.alltoallv(MPI.IN_PLACE, [recv, [0] * SIZE])
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.allreduce(b"abc", b"abc")
    if RANK:
        with pytest.raises(ValueError, match="buf is read-only"):
            pycoll.bcast(recv)


@pytest.mark.parametrize("device", [8, 10])  # Vulkan, ROCm
def test_memory_of_an_unknown_device_is_refused(device):
    class OnDevice(DLPack):
        def __dlpack_device__(self):
            return device, 0

    for call in (pycoll.allreduce, pycoll.allgather, pycoll.bcast):
        with pytest.raises(TypeError, match=rf"buf is on a device .*{device}"):
            call(OnDevice(np.ones(3)))
    with pytest.raises(TypeError, match="recvbuf is on a device"):
        pycoll.allreduce(np.ones(3), OnDevice(np.ones(3)))


def imported(name):
    if SIZE > 4:
        pytest.skip("importing takes long on many ranks, on whose number nothing here depends")
    return pytest.importorskip(name)


@pytest.fixture(scope="module")
def torch():
    return imported("torch")


def test_tensors(torch):
    send, recv = torch.arange(4.0) + RANK, torch.zeros(4)
    expected = np.arange(4) * SIZE + TOTAL
    for algorithm in (None, "ring", "ring"):
        recv.zero_()
        assert pycoll.allreduce(send, recv, algorithm=algorithm) is recv
        np.testing.assert_array_equal(recv.numpy(), expected)
    assert pycoll.allreduce(MPI.IN_PLACE, send) is send
    np.testing.assert_array_equal(send.numpy(), expected)
    whole = torch.full((2, 3), RANK, dtype=torch.int16)
    assert pycoll.bcast(whole, SIZE - 1) is whole
    assert (whole == SIZE - 1).all()
    recv = torch.zeros(4 * SIZE)
    assert pycoll.allgatherv(send, [recv, [4] * SIZE]) is recv
    np.testing.assert_array_equal(recv.numpy(), np.tile(expected, SIZE))
    np.testing.assert_array_equal(pycoll.allgather(torch.tensor([[True, False]]).T)[0], [[True], [False]])


def test_tensors_of_bfloat16(torch, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    recv = torch.full((3,), RANK + 0.5, dtype=torch.bfloat16)
    result = pycoll.allreduce(recv)
    assert result.dtype == ml_dtypes.bfloat16
    assert result.tolist() == [TOTAL + SIZE / 2] * 3
    assert pycoll.allreduce(MPI.IN_PLACE, recv) is recv
    assert recv.tolist() == [TOTAL + SIZE / 2] * 3
    assert pycoll.bcast(recv) is recv
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match=r"sendbuf has dtype torch.bfloat16, which needs the package ml_dtypes"):
        pycoll.allreduce(recv)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_tensors_that_require_a_gradient(torch, name):
    """They are refused, because autograd would not notice a write; `detach()` makes it explicit."""
    tensor = torch.ones(3, dtype=getattr(torch, name), requires_grad=True)
    with pytest.raises(TypeError, match=r"sendbuf .*gradient"):
        pycoll.allreduce(tensor)
    with pytest.raises(TypeError, match=r"recvbuf .*gradient"):
        pycoll.allreduce(MPI.IN_PLACE, tensor)
    pycoll.allreduce(MPI.IN_PLACE, tensor.detach())
    assert tensor.tolist() == [SIZE] * 3


def test_tensors_that_numpy_cannot_have(torch):
    for tensor in (torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3, dtype=torch.float8_e5m2)):
        with pytest.raises(TypeError, match="sendbuf"):
            pycoll.allreduce(tensor)
    with pytest.raises(ValueError, match="recvbuf is not C-contiguous"):
        pycoll.allreduce(np.ones((2, 3)), torch.ones(3, 2).T)


@pytest.fixture(scope="module")
def jax():
    return imported("jax")


def test_jax_arrays(jax):
    send = jax.numpy.arange(4.0) + RANK
    expected = np.arange(4) * SIZE + TOTAL
    for _ in range(2):
        result = pycoll.allreduce(send)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, expected)
    assert MPI.Get_address(as_array("sendbuf", send)) == send.unsafe_buffer_pointer()
    for call in (lambda: pycoll.allreduce(np.ones(4, "f4"), send), lambda: pycoll.allreduce(MPI.IN_PLACE, send)):
        with pytest.raises(ValueError, match="recvbuf is read-only"):
            call()
    np.testing.assert_array_equal(send, np.arange(4.0) + RANK)


def test_jax_arrays_of_bfloat16(jax):
    send = jax.numpy.full(4, RANK + 0.5, "bfloat16")
    result = pycoll.allreduce(send)
    assert result.dtype == send.dtype
    assert result.tolist() == [TOTAL + SIZE / 2] * 4
    assert pycoll.allgather(send).shape == (SIZE, 4)
    with pytest.raises(ValueError, match="recvbuf is read-only"):
        pycoll.allreduce(MPI.IN_PLACE, send)


def arrays():
    return [np.asarray(drawn("f8", shape, high=9)) for shape in ((2, 3), 5, 0, (), (0, 4), 17)]


SUMS = [np.sum(WORLD.allgather(a), axis=0) for a in arrays()]


def assert_all(results, expected):
    assert len(results) == len(expected)
    for ours, theirs in zip(results, expected):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("algorithm", [None, *pycoll.algorithms("allreduce")])
def test_many_arrays_reduced_as_one(algorithm):
    given, recv = arrays(), [np.zeros_like(a) for a in arrays()]
    assert pycoll.allreduce(given, recv, algorithm=algorithm) is recv
    assert_all(recv, SUMS)
    assert_all(given, arrays())
    assert pycoll.allreduce(MPI.IN_PLACE, given, algorithm=algorithm) is given
    assert_all(given, SUMS)
    given = arrays()
    before = list(given)
    assert pycoll.allreduce(given, algorithm=algorithm) is given
    assert_all(given, SUMS)
    assert all(a is b for a, b in zip(given, before))
    halves = [np.asarray(a / 2) for a in arrays()]
    assert_all(pycoll.allreduce(halves, op="avg", algorithm=algorithm), [a / 2 / SIZE for a in SUMS])


def test_arrays_with_gaps():
    grid = np.arange(24.0).reshape(4, 6) + RANK
    expected = np.arange(24.0).reshape(4, 6) * SIZE + TOTAL
    given = [grid[:, 1], grid[::2, 3:].T]
    pycoll.allreduce(given)
    expected_grid = np.arange(24.0).reshape(4, 6) + RANK
    expected_grid[:, 1], expected_grid[::2, 3:] = expected[:, 1], expected[::2, 3:]
    np.testing.assert_array_equal(grid, expected_grid)
    pycoll.bcast([grid[1], grid[:, 0]], SIZE - 1)
    np.testing.assert_array_equal(grid[:, 0], np.arange(4) * 6 + SIZE - 1)


@pytest.mark.parametrize("algorithm", [None, *pycoll.algorithms("bcast")])
def test_many_arrays_of_any_dtypes_broadcast_as_one(algorithm):
    dtypes = ["f8", "u1", "i2", "S5", "D", "M8[s]", "?", [("x", "f4"), ("y", "S3")]]
    for root in {0, SIZE - 1}:
        given = [drawn(dtype, n) for dtype, n in zip(dtypes, (3, 1, 0, 5, 2, 1, 7, 4))]
        theirs = WORLD.bcast(given, root)
        assert pycoll.bcast(given, root, algorithm=algorithm) is given
        assert [a.tobytes() for a in given] == [a.tobytes() for a in theirs]


def test_lists_of_other_things():
    numbers, text = array.array("d", [RANK, 1.0]), bytearray(b"from %d" % RANK)
    pycoll.allreduce([numbers, np.ones(1)])
    assert numbers.tolist() == [TOTAL, SIZE]
    pycoll.bcast([numbers, text], SIZE - 1)
    assert text == b"from %d" % (SIZE - 1)
    scales = [np.float64(RANK), np.ones(2)]
    recv = [np.zeros(()), np.zeros(2)]
    assert_all(pycoll.allreduce(scales, recv), [TOTAL, [SIZE] * 2])
    op = MPI.Op.Create(lambda a, b, _: np.copyto(np.frombuffer(b), np.frombuffer(a)), commute=False)
    given = [np.full(3, RANK + 1.0), np.full(2, RANK + 2.0)]
    assert_all(pycoll.allreduce(given, op=op), [[1] * 3, [2] * 2])
    op.Free()


@pytest.mark.parametrize("op", ["sum", "avg", "minloc", MPI.SUM])
def test_empty_lists(op):
    for empty in ([], [np.zeros(0, "f8"), np.zeros((3, 0))]):
        if not empty or op != "minloc":
            assert pycoll.allreduce(empty, op=op) is empty
            assert pycoll.allreduce(MPI.IN_PLACE, empty, op) is empty
            assert pycoll.bcast(empty) is empty


def test_a_list_that_changes_between_calls():
    given = [np.ones(3), np.ones(2)]
    for n in (2, 3, 4):
        pycoll.allreduce(given)
        given[0] = np.full(n, 1.0)
        given.append(np.ones(n))
    assert pycoll.allreduce(given)[0].tolist() == [SIZE] * 4
    assert given[-1].tolist() == [SIZE] * 4


def test_as_many_messages_as_of_one_array():
    pieces = [np.ones(COUNT) for _ in range(100)]
    for function in (pycoll.allreduce, pycoll.bcast):
        for algorithm in pycoll.algorithms(function.__name__):
            with pycoll.traffic() as whole:
                function(np.ones(100 * COUNT), algorithm=algorithm)
            with pycoll.traffic() as together:
                function(pieces, algorithm=algorithm)
            assert (together.messages, together.nbytes) == (whole.messages, whole.nbytes)


def test_wrong_lists():
    a, b = np.ones(3), np.ones((2, 2))
    readonly = np.ones(3)
    readonly.flags.writeable = False
    for error, pattern, arguments in (
        (ValueError, r"sendbuf\[1\].*\(2, 2\).*recvbuf\[1\].*\(4,\)", ([a, b], [a.copy(), np.ones(4)])),
        (ValueError, r"sendbuf\[0\].*float64.*recvbuf\[0\].*float32", ([a], [np.ones(3, "f4")])),
        (TypeError, r"sendbuf\[1\] has dtype float32, sendbuf\[0\] has dtype float64", ([a, b.astype("f4")],)),
        (TypeError, "same length", ([a, b], [a.copy()])),
        (TypeError, "list", ([a, b], a.copy())),
        (TypeError, "list", (a, [a.copy()])),
        (ValueError, r"recvbuf\[1\] is read-only", ([a, a], [a.copy(), readonly])),
        (ValueError, r"\[1\] is read-only", ([a, readonly],)),
        (ValueError, r"recvbuf\[0\] is read-only", (MPI.IN_PLACE, [readonly])),
        (ValueError, r"recvbuf\[0\] is read-only", ([np.ones(())], [np.float64(1)])),
        (TypeError, r"\[1\] must be an array", ([a, 3.0],)),
        (TypeError, r"\[0\] has dtype object", ([np.array([None])],)),
        (TypeError, "BAND is not defined for dtype float64", ([a], None, "band")),
        (TypeError, r"recvbuf must be lists", ([a], MPI.IN_PLACE)),
    ):
        with pytest.raises(error, match=pattern):
            pycoll.allreduce(*arguments)
    with pytest.raises(TypeError, match=r"[^v]buf\[1\] must be an array|^buf\[1\] must be an array"):
        pycoll.bcast([a, None])
    if RANK:
        with pytest.raises(ValueError, match=r"^buf\[1\] is read-only"):
            pycoll.bcast([a, readonly])
    assert (a == 1).all() and (b == 1).all()
    assert_all(pycoll.allreduce([a, b]), [np.full(3, SIZE), np.full((2, 2), SIZE)])


def test_one_memory_for_two_results_is_refused():
    """Out of place, results must not overlap; in place, one array may occur twice, since both results are equal."""
    both = np.ones(4)
    for recv in ([both, both], [both, both[:]]):
        with pytest.raises(ValueError, match="overlap"):
            pycoll.allreduce([np.ones(4), np.zeros(4)], recv)
    assert pycoll.allreduce([both, both])[0].tolist() == [SIZE] * 4

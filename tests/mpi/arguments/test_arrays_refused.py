"""Arrays whose memory alone is not their value, and arrays in another byte order, are refused in all forms."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE

pytestmark = pytest.mark.mpi


class Metres(np.ndarray):
    """An array with a unit, as in astropy: it overrides the functions of NumPy."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        raise AssertionError("not called")


class Tagged(np.ndarray):
    """An array with a unit, which does not override the functions of NumPy."""

    unit = "m"


class Measured(np.ndarray):
    """An array of which each object may have another unit."""

    def __array_finalize__(self, other):
        self.unit = getattr(other, "unit", "m")


class Duck:
    """An array that is not a subclass of ndarray, as in pint."""

    __array_ufunc__ = Metres.__array_ufunc__

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__


class DLPackDuck:
    """The same, with DLPack only."""

    __array_ufunc__ = Metres.__array_ufunc__

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class WithMask:
    """An array with a mask in `__array_interface__`."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__ | {"mask": np.ones(array.shape, bool)}


MORE = {
    "mask": lambda array: np.ma.array(array, mask=array < 0),
    "unit": lambda array: array.view(Metres),
    "unit without functions": lambda array: array.view(Tagged),
    "unit of an object": lambda array: array.view(Measured),
    "duck": Duck,
    "duck with DLPack": DLPackDuck,
    "mask in the interface": WithMask,
    "another byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "a field in another byte order": lambda array: array.astype([("a", array.dtype.newbyteorder()), ("b", "u1")]),
}


@pytest.fixture(params=MORE)
def wrap(request):
    return MORE[request.param]


def refused(call, name, *arguments, **options):
    with pytest.raises(TypeError, match=rf"{name}(\[\d\])? (is of type|is a masked|has dtype)"):
        call(*arguments, **options)


@pytest.mark.parametrize("form", ["{}", "i{}", "{}_init"])
def test_functions(wrap, form):
    pycoll.attach(MPI.COMM_WORLD)
    ones, recv = np.ones(2 * SIZE), np.empty(2 * SIZE)

    def function(name):
        return getattr(pycoll, form.format(name))

    for name in ("allreduce", "scan", "alltoall"):
        refused(function(name), "sendbuf", wrap(ones))
        refused(function(name), "sendbuf", wrap(ones), recv)
        refused(function(name), "recvbuf", ones, wrap(recv))
        refused(function(name), "recvbuf", MPI.IN_PLACE, wrap(recv))
    refused(function("bcast"), "buf", wrap(ones))
    refused(function("bcast"), "buf", [ones, wrap(ones)])
    refused(function("allreduce"), "sendbuf", [ones, wrap(ones)], [recv, recv.copy()])
    refused(function("allreduce"), "recvbuf", [ones, ones], [recv, wrap(recv)])
    refused(function("allgatherv"), "sendbuf", wrap(ones[:1]), [recv, [1] * SIZE])
    refused(function("alltoallv"), "recvbuf", [ones, [1] * SIZE], [wrap(recv), [1] * SIZE])
    np.testing.assert_array_equal(pycoll.allreduce(ones), np.full(2 * SIZE, SIZE))


@pytest.mark.parametrize("form", ["{}", "I{}", "{}_init"])
def test_methods_in_every_call(wrap, form):
    """The first call of a kind sets the limit for short calls, which go to MPI."""
    comm = pycoll.Comm(MPI.COMM_WORLD)
    ones, recv = np.ones(2 * SIZE), np.empty(2 * SIZE)
    forms = (lambda array: array, lambda array: [array, MPI.DOUBLE], lambda array: [array, 2 * SIZE, MPI.DOUBLE])

    def method(name):
        return getattr(comm, form.format(name.lower() if form.startswith("I") else name))

    for _ in range(3):
        for as_spec in forms:
            if form == "{}":
                comm.Allreduce(as_spec(ones), as_spec(recv))
                comm.Scan(as_spec(ones), as_spec(recv))
                comm.Bcast(as_spec(ones))
                comm.Alltoall(ones, recv)
                comm.Reduce(as_spec(ones), as_spec(recv))
            refused(method("Allreduce"), "sendbuf", as_spec(wrap(ones)), as_spec(recv))
            refused(method("Allreduce"), "recvbuf", as_spec(ones), as_spec(wrap(recv)))
            refused(method("Scan"), "sendbuf", as_spec(wrap(ones)), as_spec(recv))
            refused(method("Bcast"), "buf", as_spec(wrap(ones)))
            refused(method("Reduce"), "sendbuf", as_spec(wrap(ones)), as_spec(recv))
            if RANK == 0:
                refused(method("Reduce"), "recvbuf", as_spec(ones), as_spec(wrap(recv)))
        for as_spec in forms[:2]:
            refused(method("Alltoall"), "sendbuf", as_spec(wrap(ones)), as_spec(recv))
            refused(method("Alltoall"), "recvbuf", as_spec(ones), as_spec(wrap(recv)))
        refused(method("Alltoallv"), "sendbuf", [wrap(ones), [1] * SIZE], [recv, [1] * SIZE])
        types = [MPI.DOUBLE] * SIZE
        refused(
            method("Alltoallw"),
            "recvbuf",
            [ones, [1] * SIZE, [0] * SIZE, types],
            [wrap(recv), *[[0] * SIZE] * 2, types],
        )
    comm.Allreduce(ones, recv)
    np.testing.assert_array_equal(recv, np.full(2 * SIZE, SIZE))


def test_messages(wrap):
    refused(pycoll.send, "buf", wrap(np.ones(2)), (RANK + 1) % SIZE)
    refused(pycoll.recv, "buf", wrap(np.ones(2)))


@pytest.mark.parametrize("kind", [np.matrix, np.recarray, type("Named", (np.ndarray,), {"name": ""})])
def test_other_subclasses_are_sent_as_memory(kind, tmp_path):
    mapped = np.memmap(tmp_path / "ones", "f8", "w+", shape=(1, 3))
    mapped[...] = 1
    for send in (np.ones((1, 3)).view(kind), mapped):
        recv = np.zeros((1, 3)).view(kind)
        assert pycoll.allreduce(send, recv) is recv
        np.testing.assert_array_equal(np.asarray(recv), np.full((1, 3), SIZE))
        assert pycoll.bcast(recv) is recv


def test_bytes_of_any_order_are_moved_as_bytes():
    comm = pycoll.Comm(MPI.COMM_WORLD)
    for _ in range(3):
        swapped = np.array([RANK + 1, 2], dtype=np.dtype("f8").newbyteorder())
        comm.Bcast([swapped, MPI.BYTE])
        assert swapped.tolist() == [1, 2]
        numbers = pycoll.bcast(swapped.view(np.uint8)).view(swapped.dtype)
        assert numbers.tolist() == [1, 2]

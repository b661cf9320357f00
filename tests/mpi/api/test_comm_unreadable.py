"""`pycoll.Comm` without CuPy passes buffers that claim to be in GPU memory on to MPI."""

import sys
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE

from .specifications import FORMS, INT, METHODS, OURS, TYPED, call_of, check, run

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)


class WithInterface:
    """An array that claims to be in GPU memory by `__cuda_array_interface__`."""

    def __init__(self, array):
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


class WithDLPack:
    """An array that claims to be in GPU memory by DLPack."""

    def __init__(self, array, device=2):
        self._array, self._device = array, device

    def __dlpack_device__(self):
        return self._device, 0

    def __dlpack__(self, stream=None, **options):
        return self._array.__dlpack__(**options)


class OnOtherDevice(WithDLPack):
    """An array on a device that neither NumPy nor CuPy can read."""

    def __init__(self, array):
        super().__init__(array, 14)


KINDS = [WithInterface, WithDLPack, OnOtherDevice]


def wrapped(kind, argument):
    """Return the same buffer specification with the array wrapped in this class."""
    if isinstance(argument, np.ndarray):
        return kind(argument)
    if isinstance(argument, list | tuple) and argument and isinstance(argument[0], np.ndarray):
        return type(argument)([kind(argument[0]), *argument[1:]])
    return argument


def wrapped_call(kind, *args, **kwargs):
    arguments, memory = call_of(*args, **kwargs)
    return [wrapped(kind, argument) for argument in arguments], memory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_collectives(method, kind):
    style = TYPED if method.endswith("v") else "[buf, count, type]"
    for types in (("int", "int"), ("vector", "struct"))[: 1 if "educe" in method or "scan" in method.lower() else 2]:
        check(method, partial(wrapped_call, kind, method, RANK, style, types, root=SIZE - 1), FORMS)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "Bcast"])
def test_in_place(method):
    style = TYPED if method.endswith("v") else "[buf, count, type]"
    make = partial(wrapped_call, WithInterface, method, RANK, style, inside=True, marker=MPI.IN_PLACE)
    check(method, make, FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_alltoallw(form):
    send, recv = np.arange(SIZE, dtype="i4") + 10 * RANK, np.zeros(SIZE, "i4")
    counts, displs = [1] * SIZE, [4 * rank for rank in range(SIZE)]
    specs = [[WithInterface(array), counts, displs, [INT] * SIZE] for array in (send, recv)]
    run(OURS, "Alltoallw", form, specs)
    np.testing.assert_array_equal(recv, 10 * np.arange(SIZE) + RANK)


@pytest.mark.parametrize("host", [None, "send", "recv"])
def test_reduce_scatter_without_counts(host):
    """One of the two buffers of a rank may be in host memory, and counts may be given on some ranks only."""
    send, recv = np.arange(SIZE * (SIZE + 1) // 2, dtype="i4"), np.zeros(RANK + 1, "i4")
    sendbuf, recvbuf = (
        array if host == name else WithInterface(array) for array, name in ((send, "send"), (recv, "recv"))
    )
    OURS.Reduce_scatter(sendbuf, [recvbuf, RANK + 1, INT] if RANK % 2 else [recvbuf, INT])
    start = RANK * (RANK + 1) // 2
    np.testing.assert_array_equal(recv, SIZE * send[start : start + RANK + 1])


@pytest.mark.parametrize("form", FORMS)
def test_an_algorithm_that_cannot_run(form):
    send, recv = np.ones(4), np.zeros(4)
    why = "algorithm='ring': allreduce of a buffer in memory that only MPI may be able to read.*algorithm='native'"
    with pytest.raises(TypeError, match=why):
        run(OURS, "Allreduce", form, [WithInterface(send), WithInterface(recv)], algorithm="ring")
    run(OURS, "Allreduce", form, [WithInterface(send), WithInterface(recv)], algorithm="native")
    np.testing.assert_array_equal(recv, SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_messages(kind):
    send, right, left = np.arange(4) + 10 * RANK, (RANK + 1) % SIZE, (RANK - 1) % SIZE

    def exchange(call):
        recv = np.zeros(4, int)
        call(kind(send), kind(recv))
        np.testing.assert_array_equal(recv, np.arange(4) + 10 * left)

    def by(start_send, start_recv):
        def call(sendbuf, recvbuf):
            requests = [start_recv([recvbuf, 4, MPI.LONG], left), start_send([sendbuf, MPI.LONG], right)]
            for request in requests:
                if isinstance(request, MPI.Prequest):
                    request.Start()
            MPI.Request.Waitall(requests)

        return call

    exchange(by(OURS.Isend, OURS.Irecv))
    exchange(by(OURS.Issend, OURS.Irecv))
    exchange(by(OURS.Send_init, OURS.Recv_init))
    exchange(lambda sendbuf, recvbuf: OURS.Sendrecv(sendbuf, right, 0, recvbuf, left))
    if SIZE > 1:
        exchange(partial(in_turns, OURS.Send, right, left))
        exchange(partial(in_turns, OURS.Ssend, right, left))
    both = send.copy()
    OURS.Sendrecv_replace([kind(both), MPI.LONG], right, 0, left)
    np.testing.assert_array_equal(both, np.arange(4) + 10 * left)


def in_turns(send, right, left, sendbuf, recvbuf):
    if RANK == 0:
        send([sendbuf, MPI.LONG], right)
    OURS.Recv([recvbuf, MPI.LONG], left)
    if RANK:
        send([sendbuf, MPI.LONG], right)


@pytest.mark.parametrize("call", [pycoll.allreduce, pycoll.iallreduce, pycoll.allreduce_init, pycoll.send])
def test_functions_say_that_cupy_is_needed(call):
    with pytest.raises(TypeError, match="needs the package CuPy"):
        call(WithInterface(np.ones(4)), *([0] if call is pycoll.send else []))


def test_wrong_arguments():
    """Wrong arguments raise the same errors as in mpi4py."""
    values = WithInterface(np.ones(4))
    with pytest.raises(ValueError, match="expecting 2 to 4 items"):
        OURS.Bcast([values])
    with pytest.raises(KeyError):
        OURS.Allreduce([values, "no such type"], WithInterface(np.ones(4)))
    with pytest.raises(ValueError, match="mismatch"):
        OURS.Allreduce([values, 4, MPI.DOUBLE], [WithInterface(np.ones(4)), 3, MPI.DOUBLE])


@pytest.mark.parametrize("kind", KINDS)
def test_operations_that_mpi_does_not_have(kind):
    values, result = kind(np.ones(3)), np.zeros(3)
    with pytest.raises(TypeError, match=r"op=EXACT_SUM is not defined for these buffers: .* only MPI may be able"):
        OURS.Allreduce(values, result, "exact_sum")

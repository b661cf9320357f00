"""Registered memory: allocation and freeing, arguments, too little memory, leaks."""

import os

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from pycoll.arguments.memory import address
from pycoll.runtime import registered, shared_file
from pycoll.runtime.attach import attach
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE == 1, reason="one rank does not share memory")]

COUNT = 65 * 1024 + 3  # float32 elements of an array


def test_shapes_and_lengths_differ(comm):
    array = pycoll.empty((RANK, 3), np.int16, comm=comm)
    assert array.shape == (RANK, 3)
    assert array.dtype == np.int16
    one = pycoll.zeros(5 + RANK, comm=comm)
    assert one.dtype == np.float64
    assert not one.any()
    pycoll.free(array, comm=comm)
    pycoll.free(one, comm=comm)


def test_arrays_do_not_overlap(comm):
    numbers = np.random.default_rng(0)
    held = {}
    for number in range(200):
        if held and numbers.random() < 0.5:
            chosen = sorted(held)[numbers.integers(len(held))]
            array = held.pop(chosen)
            assert (array == chosen).all()
            pycoll.free(array, comm=comm)
        else:
            held[number] = pycoll.empty(int(numbers.integers(1, 100_000)), np.int32, comm=comm)
            held[number][:] = number
    for number, array in held.items():
        assert (array == number).all()
        pycoll.free(array, comm=comm)


def test_windows_are_few(comm):
    arrays = [pycoll.empty(100_000, comm=comm) for _ in range(100)]
    assert len(attach(comm).registered.areas) < 12
    for array in arrays:
        pycoll.free(array, comm=comm)


def test_wrong_arguments(comm):
    with pytest.raises(ValueError, match=r"shape=\(2, -1\) has a negative dimension"):
        pycoll.empty((2, -1), comm=comm)
    with pytest.raises(ValueError, match="dtype=object contains Python objects"):
        pycoll.zeros(3, object, comm=comm)
    with pytest.raises(TypeError):
        pycoll.empty("a", comm=comm)
    with pytest.raises(TypeError, match=r"array must be an array of NumPy, not \[1\]"):
        pycoll.free([1], comm=comm)
    with pytest.raises(ValueError, match=r"not from pycoll\.empty"):
        pycoll.free(np.zeros(3), comm=comm)
    array = pycoll.zeros(3, comm=comm)
    with pytest.raises(ValueError, match=r"not from pycoll\.empty"):
        pycoll.free(array[1:], comm=comm)
    pycoll.free(array, comm=comm)
    with pytest.raises(ValueError, match="or is freed already"):
        pycoll.free(array, comm=comm)


def test_ranks_that_free_different_arrays(comm):
    arrays = [pycoll.zeros(3, comm=comm) for _ in range(2)]
    with pytest.raises(ValueError, match="the ranks free numbers"):
        pycoll.free(arrays[RANK % 2], comm=comm)
    for array in arrays:
        pycoll.free(array, comm=comm)


def refuse(*args, **kwargs):
    raise OSError("refused")


@pytest.mark.parametrize(
    ("who", "owner", "name", "value"),
    [
        (0, "pycoll.runtime.shared_file", "LIMITED", "/none"),
        (SIZE - 1, "pycoll.runtime.shared_file", "opened", refuse),
        (SIZE - 1, "os", "posix_fallocate", refuse),
        (SIZE - 1, "pycoll.runtime.shared_file", "mapped", refuse),
    ],
    ids=["no file", "other container", "no space", "no mapping"],
)
def test_memory_that_ranks_cannot_share(monkeypatch, who, owner, name, value):
    """Check that arrays are in ordinary memory then, and that everything works."""
    if who == RANK:
        monkeypatch.setattr(f"{owner}.{name}", value)
    comm = WORLD.Dup()
    array = pycoll.zeros(COUNT, np.float32, comm=comm)
    array[:] = RANK
    np.testing.assert_array_equal(pycoll.allreduce(array, comm=comm), SIZE * (SIZE - 1) / 2)
    assert not attach(comm).registered.areas
    pycoll.free(array, comm=comm)
    comm.Free()


def test_a_file_of_another_process_is_not_opened():
    """Check that a rank notices if a process number belongs to another process, as in another container."""
    file = shared_file.created(10)
    process, descriptor, device, inode = shared_file.where(file)
    os.close(shared_file.opened([process, descriptor, device, inode]))
    for wrong in ([process, descriptor, device, inode + 1], [process, descriptor + 1000, device, inode]):
        with pytest.raises(OSError):
            shared_file.opened(wrong)
    os.close(file)


@pytest.mark.parametrize("who", [range(SIZE), [SIZE - 1]], ids=["all", "one"])
@pytest.mark.parametrize("nbytes", [1 << 50, 1 << 62, 1 << 70])
def test_too_little_memory(comm, nbytes, who):
    shape, registered = nbytes if RANK in who else 10, attach(comm).registered
    before = registered.nbytes
    with pytest.raises(MemoryError, match=f"cannot allocate .*bytes on rank {SIZE - 1}"):
        pycoll.empty(shape, np.uint8, comm=comm)
    array = pycoll.empty(10, np.uint8, comm=comm)
    assert (pycoll.allreduce(np.ones(3), comm=comm) == SIZE).all()
    pycoll.free(array, comm=comm)
    assert registered.nbytes == before


@pytest.mark.skipif(SIZE < 3, reason="two hosts, one of which shares memory")
def test_too_little_memory_on_another_host():
    """Check that the first host keeps no large area, if the other one cannot allocate."""
    comm = WORLD.Dup()
    here = list(range(SIZE - 1)) if RANK < SIZE - 1 else [RANK]
    memory = registered.Registered(comm, here)
    for _ in range(2):
        with pytest.raises(MemoryError, match=f"bytes on rank {SIZE - 1}$"):
            memory.allocate(2 * registered.KEPT if RANK < SIZE - 1 else registered.MOST)
    assert not memory.areas and memory.nbytes == 0 and memory.live == 0
    comm.Free()


def test_arrays_outlive_their_communicator():
    """Check that an array that is still in use stays mapped."""
    comm = WORLD.Dup()
    array = pycoll.zeros(COUNT, comm=comm)
    array[:] = RANK
    comm.Free()
    assert (array == RANK).all()


@pytest.fixture
def few_areas(monkeypatch):
    """Allow three areas at a time, each for one array, and none that is kept when it is empty."""
    monkeypatch.setattr(registered, "AREA", 61)
    monkeypatch.setattr(registered, "AREAS", 3)
    monkeypatch.setattr(registered, "KEPT", 0)


def reduced(comm):
    """Allocate an array, use it, and return it and whether the ranks share it."""
    array = pycoll.empty(COUNT * 4, np.float32, comm=comm)
    array[:] = RANK
    pycoll.allreduce(MPI.IN_PLACE, array, comm=comm)
    assert (array == SIZE * (SIZE - 1) / 2).all()
    return array, attach(comm).registered.code(address(array), array.nbytes) >= 0


def test_numbers_of_freed_memory_are_used_again(few_areas):
    comm = WORLD.Dup()
    held = reduced(comm)[0]
    for _ in range(10):
        array, shared = reduced(comm)
        assert shared
        pycoll.free(held, comm=comm)
        held = array
    comm.Free()


def test_too_many_areas_of_memory(few_areas):
    """Check that further arrays are in ordinary memory, until others are freed."""
    comm = WORLD.Dup()
    arrays = [reduced(comm) for _ in range(5)]
    assert [shared for _, shared in arrays] == [True, True, True, False, False]
    pycoll.free(arrays[1][0], comm=comm)
    assert reduced(comm)[1]
    comm.Free()


@pytest.mark.slow
def test_nothing_leaks():
    """Check that memory is given back: 10,000 arrays, and 1,000 communicators with an array that is not freed.

    With more than two ranks, which take much longer, there are fewer.
    """
    fewer = 1 if SIZE < 3 else 20
    comm = WORLD.Dup()
    for _ in range(10_000 // fewer):
        pycoll.free(pycoll.empty(1000, comm=comm), comm=comm)
    assert len(attach(comm).registered.areas) == 1
    comm.Free()
    for _ in range(1000 // fewer):
        comm = WORLD.Dup()
        array = pycoll.zeros(COUNT, np.float32, comm=comm)
        array[:] = RANK
        assert pycoll.allreduce(array, comm=comm)[0] == SIZE * (SIZE - 1) / 2
        comm.Free()

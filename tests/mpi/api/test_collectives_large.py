"""Collectives on more than 2**31 elements, and more than 2 GiB."""

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

COUNT = 2**31 + 11
COUNTS = [2**31 + 3, 8]
PERIOD = 1_048_573  # a prime, so that swapped segments are detected
BLOCKS = [np.random.default_rng(rank).integers(0, 128, PERIOD, np.uint8) for rank in range(2)]


def free_memory():
    """Return the available memory of the host in bytes; 0 if unknown."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except OSError:
        return 0


@pytest.fixture(scope="module")
def buffer():
    """Return one buffer for all tests, which fill it with copies of a block."""
    if SIZE != 2:
        pytest.skip("large counts are tested at 2 ranks")
    if WORLD.allreduce(free_memory(), MPI.MIN) < 2.5 * SIZE * COUNT:
        pytest.skip("not enough memory is free")
    return np.zeros(COUNT, np.uint8)


def pieces(buffer, start=0, stop=COUNT):
    """Yield the pieces of the buffer, each with the slice of the repeated block that belongs there."""
    for at in range(start - start % PERIOD, stop, PERIOD):
        first, last = max(start, at), min(stop, at + PERIOD)
        yield buffer[first:last], slice(first - at, last - at)


def fill(buffer, block, *part):
    for piece, place in pieces(buffer, *part):
        piece[...] = block[place]


def check(buffer, block, *part):
    assert all((piece == block[place]).all() for piece, place in pieces(buffer, *part))


def test_allreduce(buffer):
    fill(buffer, BLOCKS[RANK])
    assert pycoll.allreduce(MPI.IN_PLACE, buffer, algorithm="ring") is buffer
    check(buffer, BLOCKS[0] + BLOCKS[1])


def test_bcast(buffer):
    fill(buffer, BLOCKS[RANK])
    pycoll.bcast(buffer, 1)
    check(buffer, BLOCKS[1])


def test_allgatherv(buffer):
    """Both a block length and a displacement exceed 2**31."""
    part = (0, COUNTS[0]) if RANK == 0 else (COUNTS[0], COUNT)
    buffer[...] = 255
    fill(buffer, BLOCKS[0], *part)
    assert pycoll.allgatherv(MPI.IN_PLACE, [buffer, COUNTS]) is buffer
    check(buffer, BLOCKS[0])


def test_counts_in_specifications(buffer):
    """Methods of the communicator accept large counts and displacements."""
    comm = pycoll.Comm(WORLD)
    fill(buffer, BLOCKS[RANK])
    comm.Bcast([buffer, COUNT, MPI.BYTE], 0)
    check(buffer, BLOCKS[0])
    if RANK == 0:
        fill(buffer, BLOCKS[1], COUNTS[0], COUNT)
    comm.Allgatherv(MPI.IN_PLACE, [buffer, COUNTS[::-1], [COUNTS[0], 0], MPI.BYTE])  # the tail, then the long part
    check(buffer, BLOCKS[0], 0, COUNTS[0])
    check(buffer, BLOCKS[1], COUNTS[0], COUNT)

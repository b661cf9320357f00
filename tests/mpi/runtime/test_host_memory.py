"""Memory of a host that is lent to communicators, and lent again."""

import random

import numpy as np
import pytest

import pycoll
from pycoll.runtime import host_memory, shared_file
from pycoll.runtime.host_memory import lent_by_first, this_process
from pycoll.runtime.open_core import why_not_shared
from pycoll.selection.select import CommFacts
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(bool(why_not_shared()), reason="the ranks share no memory")]

NBYTES = 10_000


def lent(usable=True, nbytes=NBYTES):
    part, copies = lent_by_first(WORLD, CommFacts((0,) * SIZE), WORLD.allgather(this_process()), usable, nbytes)
    assert part or not copies
    return part


def test_all_ranks_see_the_same_memory_and_it_is_lent_again():
    first, other = lent(), lent()
    assert len(first.memory) == NBYTES and first.start != other.start
    np.frombuffer(first.memory, np.uint8)[RANK::SIZE] = RANK + 1
    WORLD.Barrier()
    np.testing.assert_array_equal(np.frombuffer(first.memory, np.uint8), np.arange(NBYTES) % SIZE + 1)
    assert not np.frombuffer(other.memory, np.uint8).any()
    WORLD.Barrier()
    if RANK < SIZE - 1:
        first.leave()
    WORLD.Barrier()
    third = lent()
    assert (third.file, third.start) != (first.file, first.start)  # because the last rank has not left
    if RANK == SIZE - 1:
        first.leave()
    WORLD.Barrier()
    again = lent()
    assert (again.file, again.start) == (first.file, first.start)
    assert not np.frombuffer(again.memory, np.uint8).any()
    for part in other, third, again:
        part.leave()
    WORLD.Barrier()


def test_a_larger_part_than_the_files_so_far():
    part = lent(nbytes=3 * host_memory.LEAST)
    np.frombuffer(part.memory, np.uint8)[-SIZE:][RANK] = RANK
    WORLD.Barrier()
    assert list(part.memory[-SIZE:].tobytes()) == [*range(SIZE)]
    part.leave()
    WORLD.Barrier()


@pytest.mark.skipif(SIZE == 1, reason="one rank maps only its own files")
def test_no_memory_on_any_rank_if_one_cannot_use_or_map_it(monkeypatch):
    assert lent(usable=RANK > 0) is None
    assert lent(usable=RANK < SIZE - 1) is None

    def refuse(*given):
        raise OSError

    if RANK == SIZE - 1:
        monkeypatch.setattr(host_memory, "_mapped", {})
        monkeypatch.setattr(shared_file, "opened", refuse)
    assert lent() is None
    monkeypatch.undo()
    lent().leave()
    WORLD.Barrier()


def test_no_memory_if_the_first_rank_cannot_create_a_file(monkeypatch):
    def refuse(*given):
        raise OSError

    if RANK == 0:
        monkeypatch.setattr(shared_file, "created", refuse)
    assert lent(nbytes=1 << 40) is None


def test_communicators_of_random_ranks_reuse_memory():
    numbers, ours, kept = random.Random(3), pycoll.Comm(WORLD), []
    for _ in range(60):
        colors = [numbers.randrange(2) for _ in range(SIZE)]
        comm = ours.Split(colors[RANK], numbers.choice([-1, 1]) * RANK)
        for count in 1, 700, 20_000:
            result = np.empty(count)
            comm.Allreduce(np.full(count, comm.rank + 1.0), result)
            assert (result == comm.size * (comm.size + 1) / 2).all()
            result = pycoll.allgather(np.full(count, comm.rank), comm=comm, algorithm="ring")
            assert (result[:, 0] == range(comm.size)).all()
        assert comm.allgather(comm.rank) == [*range(comm.size)]
        kept.append(comm)
        if numbers.random() < 0.8:
            kept.pop(numbers.randrange(len(kept))).Free()
    for comm in kept:
        comm.Free()

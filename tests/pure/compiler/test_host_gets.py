"""Programs for registered buffers on several hosts: results, and the order in which ranks of a host access blocks."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.compiler.host_gets import host_gets
from pycoll.compiler.program import INPUT, OUTPUT, peer_buffer
from pycoll.compiler.program_key import ProgramKey
from pycoll.compiler.programs import compiled
from pycoll.schedule.registry import algorithms_of, find
from tests.drawn import examples

from .machine import LOCAL, Machine
from .test_lower import EVEN, IN_PLACE_EVERYWHERE, buffers

PULLED = [algorithm for algorithm in EVEN if algorithm.primitive.name != "barrier"]
EVERYWHERE = ("bcast", *IN_PLACE_EVERYWHERE)  # the primitives whose blocks are read on all hosts
TWO_LEVEL = [one for one in PULLED if one.name.startswith("two_level") and one.primitive.name in EVERYWHERE]


class Interleaved(Machine):
    """Runs one step of a random rank at a time."""

    def run(self, order):
        numbers, at = random.Random(order[0]), [0] * len(self.programs)
        going = [rank for rank, program in enumerate(self.programs) if program.steps]
        while going:
            numbers.shuffle(going)
            moved = next((rank for rank in going if self.step(rank, at[rank])), None)
            assert moved is not None, f"deadlock at {[self.programs[rank].steps[at[rank]] for rank in going]}"
            at[moved] += 1
            if at[moved] == len(self.programs[moved].steps):
                going.remove(moved)
        assert not any(sends or receives for sends, receives in self.pairs.values()), "messages left over"


def combine(left, right):
    """Combine values so that the result depends on the order."""
    return 31 * left + right


def run(algorithm, hosts, root=0, count=7, segment=1 << 20, segments=3, in_place=False, seed=0, mean=False):
    """Run the programs of all ranks, compare with messages, and return the programs; None stands for messages."""
    primitive, size = algorithm.primitive, len(hosts)
    numbers = np.random.default_rng(seed)
    data = [numbers.integers(0, 1000, count * (size if primitive.takes_all else 1)) for _ in range(size)]
    inside = [
        (in_place or primitive.name == "bcast") and (rank == root or not primitive.rooted) for rank in range(size)
    ]
    memory = [buffers(primitive, data, rank, root, count, inside[rank]) for rank in range(size)]
    before = [send.copy() for send, _ in memory]
    reference = [[array.copy() for array in mine] for mine in memory]
    known = hosts if algorithm.knows_hosts else None
    keys = [
        ProgramKey(*(algorithm, rank, size, root, count, 8, inside[rank], segments, segment), hosts=known)
        for rank in range(size)
    ]
    found = [host_gets(key, hosts, mean) for key in keys]
    programs = [one.program if one else compiled(key) for one, key in zip(found, keys)]
    machine = Interleaved(programs, memory, combine, bool(seed % 2))
    for rank, one in enumerate(found):
        here = [other for other in range(size) if hosts[other] == hosts[rank]]
        assert all((found[other] and found[other].needed) == (one and one.needed) for other in here)
        if one is None:
            continue
        readable = set()
        for place, other in enumerate(here):
            for which in (INPUT, OUTPUT):
                machine.memory[rank] += [machine.memory[other][which]]
                readable |= {peer_buffer(place, which)} if (place, which) in one.needed else set()
        for step in one.program.steps:
            if isinstance(step, LOCAL):
                assert step[-1].buffer < 3 and all(region.buffer in readable for region in step if region.buffer > 2)
        assert not any(message.region.size and message.peer in here for message in one.program.messages)
    machine.run([seed])
    Machine([compiled(key) for key in keys], reference, combine, True).run(list(range(size)))
    for rank, ((send, recv), (_, other)) in enumerate(zip(memory, reference)):
        assert np.array_equal(send, before[rank]), "the send buffer was written"
        wanted = 0 if rank == 0 and primitive.name == "exscan" else count * (size if primitive.gives_all else 1)
        assert np.array_equal(recv[:wanted], other[:wanted] // size if mean else other[:wanted])
    return found


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("algorithm", TWO_LEVEL, ids=str)
def test_two_levels_need_no_messages_inside_hosts(algorithm, in_place):
    """Check that all hosts of equal size read blocks, for any placement of the ranks."""
    for hosts in [(0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1, 1, 1), (0, 1, 2, 2, 0, 1), (0, 0, 0, 0)]:
        for root in range(len(hosts)) if algorithm.primitive.rooted else [0]:
            for number, count in enumerate((6, 37, 120)):
                assert all(run(algorithm, hosts, root, count, 40, in_place=in_place, seed=root + number))


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive", ["scatter", "gather"])
def test_blocks_from_or_to_a_root_need_no_messages_on_its_host(primitive, in_place):
    for hosts in [(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1)]:
        for root in range(len(hosts)):
            found = run(find(primitive, "naive"), hosts, root, in_place=in_place)
            company = hosts.count(hosts[root]) > 1
            assert [one is not None for one in found] == [company and host == hosts[root] for host in hosts]


@examples(10)
@given(st.data())
@pytest.mark.parametrize("algorithm", PULLED, ids=str)
def test_drawn_machines(algorithm, data):
    size = data.draw(st.integers(1, 9), "size")
    run(
        algorithm,
        tuple(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size), "hosts")),
        root=data.draw(st.integers(0, size - 1), "root"),
        count=data.draw(st.integers(0, 60), "count"),
        segment=8 * data.draw(st.integers(1, 40), "segment"),
        segments=data.draw(st.integers(1, 6), "segments"),
        in_place=data.draw(st.booleans(), "in place"),
        seed=data.draw(st.integers(0, 99), "seed"),
    )


@pytest.mark.parametrize("in_place", [False, True], ids=["out", "in"])
@pytest.mark.parametrize("primitive", ["allreduce", "reduce_scatter"])
def test_means(primitive, in_place):
    run(find(primitive, "two_level"), (0, 1, 0, 1), count=37, in_place=in_place, mean=True)


def test_without_company_on_its_host_or_with_a_root_that_may_work_in_place_a_rank_uses_messages():
    assert run(find("allreduce", "two_level"), (0, 1, 1))[0] is None
    key = ProgramKey(find("reduce", "tree"), 0, 2, 0, 7, 8, False, 1, 1 << 20)
    assert host_gets(key, (0, 0)) is None


@examples(20)
@given(st.data())
@pytest.mark.parametrize("algorithm", algorithms_of("allgatherv").values(), ids=str)
def test_ranks_agree_wherever_their_blocks_are(algorithm, data):
    """Check that the places of blocks, which only their rank knows, do not decide whether there is a program."""
    size = data.draw(st.integers(2, 8), "size")
    hosts = tuple(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size), "hosts"))
    counts = data.draw(st.lists(st.integers(0, 5), min_size=size, max_size=size), "counts")
    inside, known = data.draw(st.booleans(), "in place"), hosts if algorithm.knows_hosts else None
    found = {}
    for rank in range(size):
        order, start, places = data.draw(st.permutations(range(size)), "order"), 0, {}
        for block in order:
            start += 8 * data.draw(st.integers(0, 1), "gap")
            places[block] = start, 8 * counts[block]
            start += 8 * counts[block]
        recvs = tuple(places[block] for block in range(size))
        sends = recvs if inside else ((0, 8 * counts[rank]),)
        key = ProgramKey(*(algorithm, rank, size, 0, 0, 1, inside, 1, 1 << 20), sends=sends, recvs=recvs, hosts=known)
        program = host_gets(key, hosts)
        found.setdefault(hosts[rank], []).append(program and program.needed)
    assert all(len(set(several)) == 1 for several in found.values())

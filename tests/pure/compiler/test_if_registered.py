"""Programs for buffers that may be registered: the exchange of positions, and the two ways from there."""

from itertools import pairwise

import pytest

from pycoll.compiler.host_gets import host_gets
from pycoll.compiler.if_registered import COLUMNS, WIDTH, if_registered
from pycoll.compiler.program import SCRATCH, FindPeers, Region, Skip, Start, Wait
from pycoll.compiler.program_key import ProgramKey
from pycoll.compiler.programs import compiled
from pycoll.compiler.registered import registered_program
from pycoll.schedule.registry import find


def program_of(name, algorithm, rank, hosts):
    """Return the program, with registered buffers and the ordinary one, and the ranks of the host."""
    size, several = len(hosts), len(set(hosts)) > 1
    chosen = find(name, algorithm)
    known = hosts if chosen.knows_hosts else None
    key = ProgramKey(chosen, rank, size, 0, 24, 4, False, 1, 1 << 20, hosts=known)
    ordinary, here = compiled(key), tuple(other for other in range(size) if hosts[other] == hosts[rank])
    direct = host_gets(key, hosts) if several else registered_program(key)
    return if_registered(direct, ordinary, rank, here), direct, ordinary, here


def ways_of(name, algorithm, hosts):
    """For each rank, yield the parts of its program, and the steps of the exchange and of the two ways from there."""
    for rank in range(len(hosts)):
        program, direct, ordinary, here = program_of(name, algorithm, rank, hosts)
        kinds = [type(step) for step in program.steps]
        look, skip = kinds.index(FindPeers), kinds.index(Skip)
        steps = program.steps[:look], program.steps[look + 1 : skip], program.steps[skip + 1 :]
        assert program.steps[look].otherwise == skip + 1, "the ordinary program follows"
        assert program.steps[skip].to == len(program.steps)
        yield program, direct, ordinary, here, steps


CASES = [
    ("allreduce", "ring", (0, 0, 0)),
    ("allreduce", "recursive_doubling", (0,) * 4),
    ("reduce_scatter", "ring", (0, 0)),
    ("bcast", "tree", (0,) * 5),
    ("alltoall", "naive", (0, 0, 0)),
    ("allreduce", "two_level", (0, 0, 1, 1)),
    ("allgather", "two_level", (0, 1, 0, 1)),
]


@pytest.mark.parametrize("name, algorithm, hosts", CASES)
def test_the_steps_of_both_ways(name, algorithm, hosts):
    for _, direct, ordinary, here, (_, found, otherwise) in ways_of(name, algorithm, hosts):
        assert [type(step) for step in otherwise] == [type(step) for step in ordinary.steps]
        closing = 0 if direct.has_messages else len(found) - len(direct.program.steps) - len(direct.after.steps)
        assert closing >= 0 and (closing > 0) == (not direct.has_messages and len(here) > 1)


@pytest.mark.parametrize("name, algorithm, hosts", CASES)
def test_each_way_starts_its_own_messages_and_waits_for_them(name, algorithm, hosts):
    for program, _, _, here, (exchange, found, otherwise) in ways_of(name, algorithm, hosts):
        for steps in (exchange + found, exchange + otherwise):
            started = [step.message for step in steps if type(step) is Start]
            assert sorted(started) == sorted(step.message for step in steps if type(step) is Wait)
            assert len({*started}) == len(started)
        synchronizing = program.messages[: program.synchronizing]
        assert all(message.peer in here for message in synchronizing)
        assert all(message.region.size <= COLUMNS * WIDTH * len(here) for message in synchronizing)


@pytest.mark.parametrize("name, algorithm, hosts", CASES)
def test_the_table_of_positions_is_at_the_beginning_of_scratch(name, algorithm, hosts):
    for rank in range(len(hosts)):
        program, _, _, here = program_of(name, algorithm, rank, hosts)
        row, place = COLUMNS * WIDTH, here.index(rank)
        assert program.scratch >= row * len(here)
        sent = [message.region for message in program.messages[: program.synchronizing] if message.outgoing]
        assert len(here) == 1 or Region(SCRATCH, place * row, row) in sent


@pytest.mark.parametrize("name, algorithm, hosts", CASES)
def test_rounds_follow_one_another(name, algorithm, hosts):
    for program, *_, ways in ways_of(name, algorithm, hosts):
        rounds = [{program.messages[step.message].round for step in steps if type(step) is Start} for steps in ways]
        used = [one for one in rounds if one]
        assert all(max(one) < min(other) for one, other in pairwise(used))

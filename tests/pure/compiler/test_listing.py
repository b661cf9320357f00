"""Programs as text and as JSON."""

import json

import pytest

from pycoll.compiler.listing import listing, slot_listing
from pycoll.compiler.program import Collective, FindPeers, Finish, Program, Ready, Skip
from pycoll.compiler.program_key import ProgramKey
from pycoll.compiler.programs import compiled
from pycoll.compiler.slots import slot_program
from pycoll.schedule.registry import NATIVE, PRIMITIVES, algorithms_of, find


def key(primitive, name, rank, size, nbytes):
    return ProgramKey(find(primitive, name), rank, size, 0, nbytes, 1, False, 1, 1 << 62).with_equal_counts()


def test_lines_of_a_ring():
    assert str(listing("a ring", compiled(key("allreduce", "ring", 0, 2, 16)))).splitlines() == [
        "a ring",
        "  0  receive recvbuf[0:8] from rank 1 (message 1, round 1)",
        "  1  send sendbuf[8:16] to rank 1 (message 0, round 1)",
        "  2  wait for message 1",
        "  3  recvbuf[0:8] = sendbuf[0:8] op recvbuf[0:8]",
        "  4  wait for message 0",
        "  5  receive recvbuf[8:16] from rank 1 (message 3, round 2)",
        "  6  send recvbuf[0:8] to rank 1 (message 2, round 2)",
        "  7  wait for message 3",
        "  8  wait for message 2",
    ]


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_step_of_every_algorithm_is_listed(primitive):
    for name in algorithms_of(primitive):
        if name == NATIVE:
            continue
        for rank in range(3):
            program = compiled(key(primitive, name, rank, 3, 24))
            found = listing(name, program)
            assert len(str(found).splitlines()) == 1 + len(program.steps)
            content = json.loads(json.dumps(found.as_json()))
            sent = [step for step in content["steps"] if step["do"] == "send"]
            assert len(sent) == sum(message.outgoing for message in program.messages)
            assert content["scratch"] == program.scratch and all(step["do"] for step in content["steps"])


def test_turns_in_slots():
    found = slot_listing("slots", slot_program(key("allreduce", "naive", 1, 2, 100_000)))
    lines = str(found).splitlines()
    assert "turn 0: slot of rank 1[0:32768] = sendbuf[0:32768]" in lines[1]
    assert sum("post READY" in line for line in lines) == 1 + found.steps[-1]["turn"]
    assert any("wait until rank 0 has posted READY" in line for line in lines)
    assert {step["do"] for step in found.steps} == {"copy", "post", "await", "combine"}


def test_other_steps():
    steps = [Ready(), Finish(0), FindPeers(3), Skip(4), Collective("bcast", 2, "blocking", None, None)]
    assert [line.split(maxsplit=1)[1] for line in str(listing("t", Program(steps, [], 0))).splitlines()[1:]] == [
        "follow the GPU",
        "wait for the GPU step 0",
        "find peers otherwise 3",
        "skip to 4",
        "call MPI collective bcast root 2",
    ]

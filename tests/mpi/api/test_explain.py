"""pycoll.explain: the steps of this rank."""

import json

import numpy as np
import pytest

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def steps(primitive, **options):
    found = pycoll.explain(primitive, steps=True, **options)
    assert str(found).endswith(str(found.steps))
    return found.steps.as_json()["steps"]


def test_steps_of_a_named_algorithm():
    found = steps("allreduce", nbytes=8 * SIZE, algorithm="ring")
    sent = [step for step in found if step["do"] == "send"]
    assert [step["peer"] for step in sent] == [(RANK + 1) % SIZE] * 2 * (SIZE - 1)
    assert [step["region"]["bytes"] for step in sent] == [8] * len(sent)
    json.dumps(found)
    assert pycoll.explain("allreduce", nbytes=8, algorithm="ring").steps is None


def test_the_messages_are_those_of_a_call():
    nbytes = 40 * SIZE
    for name in ("ring", "recursive_doubling", "naive"):
        with pycoll.traffic() as sent:
            pycoll.allreduce(bytearray(nbytes), op="bor", algorithm=name)
        listed = steps("allreduce", nbytes=nbytes, dtype="u1", op="bor", algorithm=name)
        found = [step for step in listed if step["do"] == "send"]
        assert len(found) == sent.messages
        assert sum(step["region"]["bytes"] for step in found) == sent.nbytes


def test_an_average_ends_with_a_division():
    found = steps("allreduce", nbytes=64, op="avg", algorithm="recursive_doubling")
    assert found[-1] == {"do": "divide", "region": {"buffer": "recvbuf", "start": 0, "bytes": 64}}


def test_the_root_sends():
    root = SIZE - 1
    found = steps("bcast", nbytes=64, root=root, algorithm="naive")
    assert sum(step["do"] == "send" for step in found) == (SIZE - 1 if RANK == root else 0)


def test_blocks_of_different_lengths_are_listed_as_if_equal():
    found = steps("allgatherv", nbytes=16, algorithm="ring")
    assert sum(step["do"] == "receive" for step in found) == SIZE - 1


def test_shared_memory_and_mpi():
    explained = pycoll.explain("allreduce", nbytes=64, steps=True)
    if explained.shared_memory:
        assert "in slots, rank" in str(explained) and "send" not in {step["do"] for step in explained.steps.steps}
    assert steps("allreduce", nbytes=64, algorithm="native") == [
        {"do": "call MPI", "collective": "allreduce", "root": 0}
    ]


def test_a_root_that_does_not_exist():
    with pytest.raises(ValueError, match=f"root={SIZE} is not a rank"):
        pycoll.explain("bcast", nbytes=8, root=SIZE)


@pytest.fixture
def ring():
    comm = WORLD.Create_cart([SIZE], [True])
    yield comm
    comm.Free()


@pytest.mark.parametrize("name", ["neighbor_alltoall", "neighbor_allgather"])
@pytest.mark.parametrize("algorithm", ["direct", "two_level", "combining"])
def test_the_messages_between_neighbors_are_those_of_a_call(ring, name, algorithm):
    if algorithm == "combining" and name == "neighbor_allgather":
        with pytest.raises(ValueError, match="is not one of the algorithms of neighbor_allgather"):
            pycoll.explain(name, comm=ring, nbytes=8, algorithm=algorithm)
        return
    send = np.arange(2.0)[: 2 if name == "neighbor_alltoall" else 1]
    call = getattr(pycoll, name)
    with pycoll.traffic() as sent:
        call(send, np.zeros(2), comm=ring, algorithm=algorithm)
    explained = pycoll.explain(name, comm=ring, nbytes=8, algorithm=algorithm, steps=True)
    assert explained.reason == "requested by the call" and explained.algorithm == algorithm
    listed = [step for step in explained.steps.steps if step["do"] == "send"]
    lengths = SIZE - 1 if algorithm == "two_level" else 0  # messages that tell the other ranks the lengths of 4 blocks
    assert len(listed) == sent.messages - lengths
    assert sum(step["region"]["bytes"] for step in listed) == sent.nbytes - 4 * 8 * lengths


def test_why_neighbors_do_not_use_slots(ring):
    def reason(name="neighbor_alltoall", nbytes=8, comm=ring):
        return pycoll.explain(name, comm=comm, nbytes=nbytes).reason

    short = pycoll.explain("neighbor_alltoall", comm=ring, nbytes=8, steps=True)
    if short.shared_memory:
        assert short.reason == "by the rules inside a host" and "in slots, rank" in str(short)
        graph = WORLD.Create_dist_graph([RANK], [1], [(RANK + 1) % SIZE])
        assert "they need a grid, or offsets in both directions" in reason(comm=graph)
        graph.Free()
        assert reason(nbytes=1 << 20).startswith("by the rules, without slots because the blocks have more than ")
        assert reason("neighbor_alltoallv").endswith("because the blocks may have different lengths")
    else:
        assert short.reason.startswith("by the rules, without slots because ")


def test_neighbors_need_a_topology():
    with pytest.raises(TypeError, match="neighbor_alltoallw requires a communicator with a topology"):
        pycoll.explain("neighbor_alltoallw", nbytes=8)
    graph = WORLD.Create_dist_graph([RANK], [1], [(RANK + 1) % SIZE])
    with pytest.raises(ValueError, match="algorithm='combining' needs a grid"):
        pycoll.explain("neighbor_alltoall", nbytes=8, comm=graph, algorithm="combining")
    graph.Free()

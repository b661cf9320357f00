"""The proof accepts every registered schedule, and rejects wrong schedules."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.primitives.swing import distance, steps
from pycoll.schedule.costs import disagreements
from pycoll.schedule.cuts import per_rank, whole
from pycoll.schedule.moves import AFTER, BEFORE, Copy, Recv, Reduce, Send
from pycoll.schedule.proof import ProofError, prove
from pycoll.schedule.registry import PRIMITIVES, Algorithm, algorithms_of, find
from tests.drawn import examples

ALGORITHMS = [algorithm for name in PRIMITIVES for algorithm in algorithms_of(name).values()]
LARGE = [18, 19, 20, 21, 24, 25, 27, 30, 31, 32, 33, 65]  # test_costs.py proves others


@pytest.mark.parametrize("sizes", [range(1, 18), pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_every_size(algorithm, sizes):
    adopted = algorithm.generator.__module__.rpartition(".")[2] != algorithm.primitive.name
    slow = algorithm.primitive.name.startswith("alltoall")  # one block per pair of ranks
    for size in [size for size in sizes if size <= (24 if adopted else 33 if slow else 65)]:
        prove(algorithm, size, root=size // 3 if algorithm.primitive.rooted else 0, segments=2)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.primitive.rooted], ids=str)
def test_every_root(algorithm):
    for size in range(1, 14):
        for root in range(size):
            prove(algorithm, size, root, segments=3)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.pipelined], ids=str)
def test_every_number_of_segments(algorithm):
    for size in (1, 2, 3, 4, 7, 8, 13):
        for segments in (1, 2, 3, 4, 7, 16, 33):
            prove(algorithm, size, segments=segments)


LAYOUTS = [
    (0, 0, 1, 1, 2, 2, 3, 3),
    (0, 1, 2, 3, 0, 1, 2, 3),
    (0, 0, 0, 1, 1),
    (0, 1, 1, 2, 2, 2),
    (3, 1, 3, 1, 1, 2, 2, 1, 3),
    (0,) * 7,
    (0,),
]


@examples(150)
@given(st.data())
@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.knows_hosts], ids=str)
def test_every_layout_of_hosts(algorithm, data):
    hosts = data.draw(st.sampled_from(LAYOUTS) | st.lists(st.integers(0, 4), min_size=1, max_size=12).map(tuple))
    root = data.draw(st.integers(0, len(hosts) - 1)) if algorithm.primitive.rooted else 0
    prove(algorithm, len(hosts), root, data.draw(st.integers(1, 4)), hosts=hosts)


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.knows_hosts and not a.primitive.varies], ids=str)
def test_no_more_than_must_crosses_a_hosts_link(algorithm):
    """Check that host links carry no more than the minimum in each direction, for any order of ranks on four hosts."""
    least = {"bcast.two_level": 1, "scatter": 3 / 4, "gather": 3 / 4, "allgather": 3 / 4, "allreduce": 2 * 3 / 4}
    least |= {"reduce_scatter": 3 / 4, "alltoall": 3 / 4, "barrier": 0}
    whole_vectors = ("bcast.two_level_log", "bcast.hierarchical:levels=node+numa", "reduce")
    least |= dict.fromkeys(whole_vectors, 2)  # to or from two other hosts
    most = least.get(str(algorithm), least.get(algorithm.primitive.name))
    for ranks in (1, 2, 3):
        orders = [tuple(host for host in range(4) for _ in range(ranks)), (0, 1, 2, 3) * ranks]
        shuffled = list(orders[0])
        random.Random(0).shuffle(shuffled)
        for hosts in [*orders, tuple(shuffled)]:
            parts = algorithm.parts(len(hosts), 2, hosts)
            crossing = prove(algorithm, len(hosts), 0, 2, lambda block: 1 / parts, hosts).crossing  # noqa: B023
            for host in range(4):
                for end in (0, 1):
                    crosses = sum(n for way, n in crossing.items() if way[end] == host)
                    assert crosses <= most * (ranks if algorithm.primitive.name == "alltoall" else 1) + 1e-9


@examples(150)
@given(st.data())
@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a.levels], ids=str)
def test_every_layout_of_domains(algorithm, data):
    """Check that schedules are right for domains that are even, uneven, or nested by chance."""
    depth = data.draw(st.integers(1, 3))
    place = st.tuples(*[st.integers(0, 2)] * depth)
    hosts = tuple(data.draw(st.lists(place, min_size=1, max_size=12)))
    root = data.draw(st.integers(0, len(hosts) - 1)) if algorithm.primitive.rooted else 0
    prove(algorithm, len(hosts), root, hosts=hosts)


def test_no_more_than_must_crosses_a_domains_link():
    """Check the bytes that leave a domain of a host, for four domains on two hosts, in the way of simulation."""
    for name, most in [("allgather", 1 / 2), ("reduce_scatter", 1 / 2), ("allreduce", 1)]:
        chosen = find(name, "hierarchical")
        places = tuple((rank % 2, rank // 2 % 2) for rank in range(12))
        schedules = [chosen.schedule(rank, 12, hosts=places) for rank in range(12)]
        crossing = Counter()
        for rank, rounds in enumerate(schedules):
            for move in (move for moves in rounds for move in moves if isinstance(move, Send)):
                if places[rank][0] == places[move.to][0] and places[rank] != places[move.to]:
                    crossing[places[rank]] += len(move.blocks) / chosen.parts(12, 1, places)
        assert len(crossing) == 4 and max(crossing.values()) <= most + 1e-9


def test_the_table_of_algorithms():
    """Check that the package has all promised algorithms."""
    promised = {
        "bcast": ["naive", "tree", "ring", "scatter_allgather", "two_level", "knomial:4", "bine", "two_level_log"],
        "scatter": ["naive", "tree", "ring", "knomial:4", "bine", "two_level"],
        "gather": ["naive", "tree", "ring", "knomial:4", "bine", "two_level"],
        "reduce": ["naive", "tree", "ring", "rabenseifner", "knomial:4", "bine", "two_level"],
        "allgather": [
            *("naive", "tree", "ring", "bruck", "neighbor", "two_level"),
            *("recursive_multiplying:4", "swing", "bine", "pat:2", "two_level_log"),
        ],
        "allreduce": [
            *("naive", "tree", "ring", "recursive_doubling", "rabenseifner", "double_tree", "ring_whole", "two_level"),
            *("knomial:4", "recursive_multiplying:4", "swing", "bine", "bruck_whole", "two_level_log"),
            *("bucket:2", "torus_swing:2"),
        ],
        "reduce_scatter": [
            *("naive", "tree", "ring", "recursive_halving", "pairwise", "two_level"),
            *("recursive_multiplying:4", "swing", "bine", "pat:2", "two_level_log"),
        ],
        "alltoall": ["naive", "tree", "ring", "pairwise", "bine", "grid:2", "grid:3", "two_level"],
        "barrier": ["naive", "tree", "ring", "dissemination", "recursive_multiplying:4", "two_level"],
        "scan": ["naive", "tree", "ring"],
        "exscan": ["naive", "tree", "ring"],
        "scatterv": ["naive", "tree", "ring"],
        "gatherv": ["naive", "tree", "ring"],
        "allgatherv": ["naive", "tree", "ring", "bruck", "neighbor"],
        "alltoallv": ["naive", "pairwise", "tree", "ring"],
        "alltoallw": ["naive", "pairwise"],
    }
    assert set(promised) <= set(PRIMITIVES)
    for primitive, names in promised.items():
        assert set(names) <= set(algorithms_of(primitive))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 100])
def test_numbers_that_are_not_listed(k):
    for primitive in [name for name in PRIMITIVES if algorithms_of(name) and not PRIMITIVES[name].varies]:
        for name, family in PRIMITIVES[primitive].families.items():
            if family.k and k >= family.k:
                for size in (1, 2, 3, 5, 8, 12):
                    assert not disagreements(find(primitive, f"{name}:{k}"), size)


def swing_of_whole_vectors(rank, size):
    """Swing without cutting the vector: every rank combines, but not in the same order as its partners."""
    sign = 1 if rank % 2 == 0 else -1
    for step in range(steps(size)):
        partner = (rank + sign * distance(step)) % size
        yield Send(partner, [0]), Reduce(partner, [0], AFTER if rank < partner else BEFORE)


def test_swing_of_whole_vectors_has_different_bits():
    """Check the statement in the docstring of `allreduce.swing`: the proof refuses this form from 8 ranks."""
    whole_vectors = Algorithm(PRIMITIVES["allreduce"], "wrong", swing_of_whole_vectors, whole, False, ("rank", "size"))
    prove(whole_vectors, 4)
    with pytest.raises(ProofError, match="does not end with the same bits"):
        prove(whole_vectors, 8)


def test_rounds_that_send_and_write_the_same_block_are_listed():
    hazards = prove(find("allreduce", "recursive_doubling"), 4).hazards
    assert sorted(hazards) == [(rank, step) for rank in range(4) for step in range(2)]
    assert prove(find("allreduce", "ring"), 4).hazards == []


# Wrong schedules, each with a different defect.


def all_send_then_all_receive(rank, size):
    """Complete with buffered messages, but deadlock without buffering."""
    yield (Send(1 - rank, [rank]),)
    yield (Recv(1 - rank, [1 - rank]),)


def one_is_left_out(rank, size):
    if rank == 0:
        yield Send(1, [0]), Recv(1, [1])
    if rank == 1:
        yield Send(0, [1]), Recv(0, [0])


def left_unreceived(rank, size):
    if rank == 0:
        yield (Send(1, [0]),)


def sends_what_it_does_not_hold(rank, size):
    yield Send(1 - rank, [1 - rank]), Recv(1 - rank, [rank])


def combines_twice(rank, size):
    for _ in range(2):
        yield Send(1 - rank, [0]), Reduce(1 - rank, [0])


def in_rank_order_on_one_rank_alone(rank, size):
    yield Send(1 - rank, [0]), Reduce(1 - rank, [0], AFTER)


def local_moves_beside_messages(rank, size):
    yield Send(1 - rank, [rank]), Recv(1 - rank, [1 - rank]), Copy(rank, "copy")


def overlapping_writes(rank, size):
    yield Send(1 - rank, [0, 1]), Send(1 - rank, [1]), Reduce(1 - rank, [0, 1]), Reduce(1 - rank, [1])


def too_little(rank, size):
    yield from ()


@pytest.mark.parametrize(
    "primitive, generator, complaint",
    [
        ("allgather", all_send_then_all_receive, "deadlock"),
        ("allgather", left_unreceived, "no one receives"),
        ("allgather", sends_what_it_does_not_hold, "does not hold"),
        ("allreduce", combines_twice, "contributions of"),
        ("allreduce", in_rank_order_on_one_rank_alone, "in the order"),
        ("allgather", local_moves_beside_messages, "both local moves and messages"),
        ("reduce_scatter", overlapping_writes, "with different blocks"),
        ("allreduce", too_little, "lacks the contribution of"),
        ("allgather", too_little, "without block"),
        ("barrier", too_little, "having heard from"),
    ],
)
def test_the_proof_refuses(primitive, generator, complaint):
    cut = whole if PRIMITIVES[primitive].cuts else per_rank
    wrong = Algorithm(PRIMITIVES[primitive], "wrong", generator, cut, True, ("rank", "size"))
    with pytest.raises(ProofError, match=complaint):
        prove(wrong, 2)


def ring_with_blocking_sends(rank, size):
    """Ranks 0 to 2 send around before they receive; rank 3 waits for rank 2, and rank 4 has no rounds."""
    if rank < 3:
        yield (Send((rank + 1) % 3, [rank]),)
        yield (Recv((rank - 1) % 3, [(rank - 1) % 3]),)
    if rank == 3:
        yield (Recv(2, [2]),)


def test_a_deadlock_says_who_waits_for_whom():
    wrong = Algorithm(PRIMITIVES["allgather"], "wrong", ring_with_blocking_sends, per_rank, True, ("rank", "size"))
    with pytest.raises(ProofError, match="deadlock") as raised:
        prove(wrong, 5)
    assert raised.value.waiting.waits == [[1], [2], [0], [2], None]
    assert raised.value.waiting.cycle == [0, 1, 2]


def test_a_message_that_no_one_receives_is_no_cycle():
    wrong = Algorithm(PRIMITIVES["allgather"], "wrong", left_unreceived, per_rank, True, ("rank", "size"))
    with pytest.raises(ProofError, match="no one receives") as raised:
        prove(wrong, 2)
    assert raised.value.waiting == ([[1], None], [])


def test_the_proof_refuses_different_bits():
    """Refuse a commutative reduction whose bits differ because each rank has its own operand on the left."""
    wrong = Algorithm(PRIMITIVES["allreduce"], "wrong", in_rank_order_on_one_rank_alone, whole, False, ("rank", "size"))
    with pytest.raises(ProofError, match="rank 1 does not end with the same bits as rank 0"):
        prove(wrong, 2)


def test_the_proof_refuses_a_rank_left_out():
    wrong = Algorithm(PRIMITIVES["allgather"], "wrong", one_is_left_out, per_rank, True, ("rank", "size"))
    with pytest.raises(ProofError, match="rank 0 ends without block 2"):
        prove(wrong, 3)

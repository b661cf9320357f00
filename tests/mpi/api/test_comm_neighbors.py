"""Collectives between neighbors, compared with those of mpi4py on the same communicators."""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from tests.drawn import examples
from tests.mpi.native import MANY, RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi

NAMES = ["Neighbor_allgather", "Neighbor_alltoall", "Neighbor_allgatherv", "Neighbor_alltoallv", "Neighbor_alltoallw"]


def grids():
    for dimensions in (1, 2, 3):
        dims = MPI.Compute_dims(SIZE, dimensions)
        for periods in itertools.product([False, True], repeat=dimensions):
            yield WORLD.Create_cart(dims, periods)


def graphs():
    pairs = [(rank + step) % SIZE for rank in range(SIZE) for step in (-1, 1)]
    yield WORLD.Create_graph([2 * rank + 2 for rank in range(SIZE)], pairs)
    yield WORLD.Create_dist_graph([RANK], [3], [(RANK + 1) % SIZE, RANK, (RANK + 1) % SIZE])
    yield WORLD.Create_dist_graph([RANK], [RANK], list(range(RANK)))
    yield WORLD.Create_dist_graph([], [], [])


@pytest.fixture(params=["grid", "graph"])
def communicators(request):
    made = list(grids() if request.param == "grid" else graphs())
    yield made
    for comm in made:
        comm.Free()


def arguments(name, comm, count, dtype="f8"):
    """The arguments of a call: send buffer, receive buffer, the array in it."""
    sources, destinations = comm.inoutedges
    lengths = [edge_length(source, RANK, count) for source in sources]
    sent = [edge_length(RANK, to, count) for to in destinations]
    if "v" not in name and "w" not in name:
        lengths, sent = [count] * len(sources), [count] * len(destinations)
    if "allgather" in name:
        sent = [edge_length(RANK, RANK, count) if "v" in name else count]
        lengths = [edge_length(source, source, count) if "v" in name else count for source in sources]
    send = (np.arange(sum(sent)) + 1000 * RANK + 1).astype(dtype)
    recv = np.full(sum(lengths), -1, dtype)
    given, got = send, recv
    if "v" in name:
        got = [recv, lengths]
    if name.endswith("alltoallv"):
        given = [send, sent]
    if name.endswith("w"):
        given, got = (typed(array, counts) for array, counts in ((send, sent), (recv, lengths)))
    return given, got, recv


def edge_length(source, to, count):
    """The length of blocks from one rank to another."""
    return 0 if min(source, to) < 0 else count + (source + 2 * to) % 3


def typed(array, counts):
    type_ = MPI.Datatype.fromcode(array.dtype.char)
    displs = np.cumsum([0, *counts])[: len(counts)] * array.itemsize
    return [array, counts, displs.tolist(), [type_] * len(counts)]


def expected(name, comm, count, dtype="f8"):
    """The result of MPI; Open MPI does nothing on a rank without sources unless the count is given."""
    send, recv, result = arguments(name, comm, count, dtype)
    if name in NAMES[:2]:
        type_ = MPI.Datatype.fromcode(np.dtype(dtype).char)
        send, recv = [send, count, type_], [recv, count, type_]
    getattr(comm, name)(send, recv)
    return result


def check_persistent(request, result, right):
    for _ in range(2):
        result[:] = -1
        request.Start()
        request.Wait()
        np.testing.assert_array_equal(result, right)
    request.Free()


@pytest.mark.parametrize("name", NAMES)
def test_methods_in_all_forms(communicators, name):
    for comm in communicators:
        ours = pycoll.Comm(comm)
        algorithms = [
            None,
            None,
            "direct",
            "two_level",
            *["native"] * (WORLD.allreduce(min(comm.degrees), MPI.MIN) > 0),
        ]
        for count, dtype in itertools.product((1, 40, 0, 3000), ("f8", "i2")):
            right = expected(name, comm, count, dtype)
            for algorithm in algorithms:
                send, recv, result = arguments(name, comm, count, dtype)
                getattr(ours, name)(send, recv, algorithm=algorithm)
                np.testing.assert_array_equal(result, right)
            for algorithm in (None, "two_level"):
                send, recv, result = arguments(name, comm, count, dtype)
                getattr(ours, f"I{name.lower()}")(send, recv, algorithm=algorithm).Wait()
                np.testing.assert_array_equal(result, right)
                check_persistent(getattr(ours, f"{name}_init")(send, recv, algorithm=algorithm), result, right)


@pytest.mark.parametrize("name", NAMES)
def test_functions_in_all_forms(communicators, name):
    function = name.lower()
    for comm in communicators:
        right = expected(name, comm, 5)
        send, recv, result = arguments(name, comm, 5)
        for algorithm in (None, None, "direct"):
            result[:] = -1
            assert getattr(pycoll, function)(send, recv, comm=comm, algorithm=algorithm) is result
            np.testing.assert_array_equal(result, right)
        result[:] = -1
        assert getattr(pycoll, f"i{function}")(send, recv, comm=comm).wait() is result
        np.testing.assert_array_equal(result, right)
        with getattr(pycoll, f"{function}_init")(send, recv, comm=comm) as request:
            result[:] = -1
            request.Start()
        np.testing.assert_array_equal(result, right)


def test_results_are_allocated():
    comm = WORLD.Create_dist_graph([RANK], [2], [(RANK + 1) % SIZE, RANK])
    left = (RANK - 1) % SIZE
    mine = np.full((2, 3), float(RANK))
    gathered = pycoll.neighbor_allgather(mine, comm=comm)
    assert gathered.shape == (2, 2, 3) and sorted(gathered[:, 0, 0]) == sorted([left, RANK])
    assert pycoll.neighbor_alltoall(mine, comm=comm).shape == (2, 3)
    assert pycoll.neighbor_alltoall(np.zeros(8), comm=comm).shape == (2, 4)
    lengths = [source + 1 for source in comm.inedges]
    varied = pycoll.neighbor_allgatherv(np.full(RANK + 1, RANK), [None, lengths], comm=comm)
    np.testing.assert_array_equal(varied, np.repeat(comm.inedges, lengths))
    comm.Free()


def test_datatypes_with_gaps():
    comm = pycoll.Comm(WORLD.Create_cart([SIZE], [True]))
    column = MPI.DOUBLE.Create_vector(3, 1, 4).Create_resized(0, 8).Commit()
    grid, halo = np.arange(12.0).reshape(3, 4) + 100 * RANK, np.full((3, 4), -1.0)
    comm.Neighbor_alltoallw([grid, [1, 1], [8, 16], [column] * 2], [halo, [1, 1], [0, 24], [column] * 2])
    np.testing.assert_array_equal(halo[:, 0], np.array([2, 6, 10]) + 100 * ((RANK - 1) % SIZE))
    np.testing.assert_array_equal(halo[:, 3], np.array([1, 5, 9]) + 100 * ((RANK + 1) % SIZE))
    assert (halo[:, 1:3] == -1).all()
    column.Free()
    comm.Free()


def test_blocks_outside_of_the_grid_are_not_touched():
    comm = pycoll.Comm(WORLD.Create_cart([SIZE], [False]))
    pairs = MPI.DOUBLE.Create_vector(2, 1, 2)  # which is packed
    send, recv = np.full(8, float(RANK)), np.full(8, -7.0)
    pairs = pairs.Create_resized(0, 32).Commit()
    comm.Neighbor_alltoall([send, 1, pairs], [recv, 1, pairs])
    ends = (recv[:4] == -7.0).all(), (recv[4:] == -7.0).all()
    assert ends == (RANK == 0, RANK == SIZE - 1)
    comm.Free()


@st.composite
def drawn_graphs(draw):
    ranks = st.integers(0, SIZE - 1)
    edges = draw(st.lists(st.tuples(ranks, ranks), max_size=3 * SIZE))
    hosts = draw(st.lists(st.sampled_from("abc"), min_size=SIZE, max_size=SIZE))
    algorithm = draw(st.sampled_from([None, "two_level"]))
    return edges, hosts, algorithm, draw(st.sampled_from(NAMES)), draw(st.integers(0, 300))


@examples(15 if MANY else 60)
@hypothesis.given(case=drawn_graphs())
def test_drawn_graphs(together, case):
    together(check_graph, *case)


def check_graph(edges, hosts, algorithm, name, count):
    """The ranks seem to be on several hosts."""
    mine = [to for source, to in edges if source == RANK]
    comm = WORLD.Create_dist_graph([RANK], [len(mine)], mine)
    right = expected(name, comm, count)
    send, recv, result = arguments(name, comm, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MPI, "Get_processor_name", lambda: hosts[RANK])
        ours = pycoll.Comm(comm)
        assert pycoll.attach(ours).facts.host_count == len({*hosts[:SIZE]})
        getattr(ours, name)(send, recv, algorithm=algorithm)
    np.testing.assert_array_equal(result, right)
    check_persistent(getattr(ours, f"{name}_init")(send, recv, algorithm=algorithm), result, right)
    comm.Free()


def test_requests_of_several_calls_at_once():
    comm = pycoll.Comm(WORLD.Create_cart([SIZE], [True]))
    sends, results = np.arange(12.0).reshape(6, 2) + RANK, np.zeros((6, 2))
    requests = [comm.Ineighbor_alltoall(send, result) for send, result in zip(sends, results)]
    pycoll.waitall(requests[::-1])
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    offsets = np.arange(6.0) * 2
    np.testing.assert_array_equal(results[:, 0], offsets + 1 + left)
    np.testing.assert_array_equal(results[:, 1], offsets + right)
    comm.Free()


def test_the_algorithm_of_a_communicator():
    comm = pycoll.Comm(WORLD.Create_cart([SIZE], [True]))
    comm.algorithm["Neighbor_alltoall"] = "native"
    with pycoll.traffic() as sent:
        comm.Neighbor_alltoall(np.ones(2), np.zeros(2))
    assert sent.messages == 0
    with pycoll.traffic() as sent:
        comm.Neighbor_alltoall(np.ones(2), np.zeros(2), algorithm="direct")
    assert sent.messages == (2 if SIZE > 1 else 0)
    with pytest.raises(ValueError, match=r"algorithm='ring' is not one of the algorithms of neighbor_alltoall: direct"):
        comm.Neighbor_alltoall(np.ones(2), np.zeros(2), algorithm="ring")
    comm.Free()


def test_wrong_arguments():
    comm = pycoll.Comm(WORLD.Create_cart([SIZE], [True]))
    two = np.zeros(2)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"sendbuf=MPI.IN_PLACE is not allowed in neighbor_alltoall"):
            comm.Neighbor_alltoall(MPI.IN_PLACE, two)
        with pytest.raises(ValueError, match=r"number of entries 3 is not a multiple of required number of blocks 2"):
            comm.Neighbor_alltoall(np.zeros(3), two)
        with pytest.raises(ValueError, match=r"counts.*2"):
            comm.Neighbor_alltoallv([two, [1, 1, 1]], [np.zeros(2), [1, 1]])
        with pytest.raises(ValueError, match=r"overlap"):
            comm.Neighbor_alltoall(two, two)
        with pytest.raises(TypeError, match=r"sendbuf has dtype float64, recvbuf has dtype int64"):
            pycoll.neighbor_alltoall(two, np.zeros(2, int), comm=comm)
        with pytest.raises(TypeError, match=r"recvbuf=None: neighbor_alltoallv needs a receive buffer"):
            pycoll.neighbor_alltoallv([two, [1, 1]], None, comm=comm)
    if SIZE == 1:
        with pytest.raises(
            ValueError, match=r"rank 0 sends 8 bytes to itself \(sendbuf\), but receives 16 \(recvbuf\)"
        ):
            comm.Neighbor_alltoallv([two, [1, 1]], [np.zeros(3), [2, 1]])
    with pytest.raises(TypeError, match=r"neighbor_allgather requires a communicator with a topology"):
        pycoll.neighbor_allgather(two, comm=WORLD)
    comm.Free()


def test_an_allgather_sends_one_block_along_several_edges():
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    comm = WORLD.Create_dist_graph_adjacent([left, left], [right, right])
    result = np.zeros((2, 3))
    with pycoll.traffic() as sent:
        pycoll.neighbor_allgather(np.full(3, float(RANK)), result, comm=comm, algorithm="direct")
    assert (result == left).all() and sent.messages == (SIZE > 1)
    wrong = f"blocks from rank {left} have 8 and 16 bytes, but it sends the same block|sends 8 bytes to itself"
    with pytest.raises(ValueError, match=wrong):
        pycoll.neighbor_allgatherv(np.zeros(1), [np.zeros(3), [1, 2]], comm=comm)
    comm.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_a_graph_that_differs_between_two_ranks():
    comm = WORLD.Create_dist_graph_adjacent([], [1, 1] if RANK == 0 else [])
    result = np.zeros(1)
    pycoll.allreduce(np.ones(1), result, comm=comm)  # which needs no edges
    assert result[0] == SIZE
    for _ in range(2):
        with pytest.raises(pycoll.MismatchError, match=r"rank 0 has 2 edges to rank 1, which has 0 from it"):
            pycoll.neighbor_alltoall(np.zeros(2), np.zeros(0), comm=comm)
    comm.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_counts_that_differ_between_two_ranks(monkeypatch):
    monkeypatch.setattr(settings, "CHECK", True)
    comm = WORLD.Create_cart([SIZE], [True])
    sends, recvs = [1, 2 if RANK == 0 else 1], [1, 1]
    with pytest.raises(pycoll.MismatchError, match=r"rank 0 sends \d+ bytes to rank 1, which expects \d+"):
        pycoll.neighbor_alltoallv([np.zeros(4), sends], [np.zeros(2), recvs], comm=comm)
    comm.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_a_block_that_is_too_long():
    comm = WORLD.Create_dist_graph([RANK], [int(RANK == 0)], [1] if RANK == 0 else [])
    blocks = {"sendbuf": [np.zeros(2), [2]] if RANK == 0 else [np.zeros(0), []]}
    blocks["recvbuf"] = [np.zeros(1), [1]] if RANK == 1 else [np.zeros(0), []]
    if RANK == 1:
        # with the ABI of MPI 5, MPICH 5.0.2 describes ERR_TRUNCATE with the text of another error
        with pytest.raises(Exception, match=r"[Tt]runcate|longer than|Other MPI error"):
            pycoll.neighbor_alltoallv(**blocks, comm=comm)
    else:
        pycoll.neighbor_alltoallv(**blocks, comm=comm)


def neighborhoods():
    for dimensions in (1, 2, 3):
        for periods in itertools.product([False, True], repeat=dimensions):
            grid = pycoll.Comm(WORLD).Create_cart(MPI.Compute_dims(SIZE, dimensions), periods)
            around = [*itertools.product((-1, 0, 1), repeat=dimensions)]
            for offsets in (around, [(2,) + (1,) * (dimensions - 1), around[0], around[0], around[-1]]):
                comm = grid.Create_neighborhood(offsets)
                yield grid, offsets, comm
                comm.Free()
            grid.Free()


def test_the_edges_of_a_neighborhood():
    for grid, offsets, comm in neighborhoods():
        assert isinstance(comm, pycoll.Distgraphcomm) and comm.rank == grid.rank
        for found, sign in zip(comm.inoutedges, (-1, 1)):
            places = [[here + sign * step for here, step in zip(grid.coords, offset)] for offset in offsets]
            inside = [
                all(period or 0 <= at < side for at, side, period in zip(place, grid.dims, grid.periods))
                for place in places
            ]
            assert found == [grid.Get_cart_rank(place) for place, there in zip(places, inside) if there]


@pytest.mark.parametrize("count", [1, 300, 20_000])
def test_combining(count):
    """Each form, on the communicator and on a duplicate of it, gives what MPI gives."""
    for _, _, comm in neighborhoods():
        sources, destinations = map(len, comm.inoutedges)
        send = np.random.default_rng(RANK).random((destinations, count))
        expected, found = np.empty((sources, count)), np.zeros((sources, count))
        MPI.Distgraphcomm.Neighbor_alltoall(comm, send, expected)
        if WORLD.allreduce(sources + destinations == 0):
            with pytest.raises(ValueError, match="has no neighbors, so it does not know the length"):
                comm.Neighbor_alltoall(send, found, algorithm="combining")
            continue
        copy = comm.Dup()
        request = comm.Neighbor_alltoall_init(send, found, algorithm="combining")
        for form in ("blocking", "on a duplicate", "nonblocking", "persistent", "persistent"):
            found[...] = 0
            if form == "nonblocking":
                comm.Ineighbor_alltoall(send, found, algorithm="combining").Wait()
            elif form == "persistent":
                request.Start()
                request.Wait()
            else:
                (comm if form == "blocking" else copy).Neighbor_alltoall(send, found, algorithm="combining")
            assert (found == expected).all()
        request.Free()
        copy.Free()


def test_what_combining_needs():
    grid = pycoll.Comm(WORLD).Create_cart([SIZE, 1], [True, True])
    graph = grid.Create_dist_graph_adjacent([RANK], [RANK])
    with pytest.raises(ValueError, match=r"needs a grid, or a communicator of Cartcomm.Create_neighborhood"):
        graph.Neighbor_alltoall(np.ones((1, 3)), np.ones((1, 3)), algorithm="combining")
    graph.Free()
    send, found = np.arange(12.0).reshape(4, 3) + RANK, np.zeros((4, 3))
    grid.Neighbor_alltoall(send, found, algorithm="combining")
    assert (found == grid.neighbor_alltoall(list(send))).all()
    comm = grid.Create_neighborhood([(0, 1), (0, -1)])
    with pytest.raises(ValueError, match="algorithm='combining' is not one of the algorithms of neighbor_alltoallv"):
        comm.Neighbor_alltoallv([np.ones(2), [1, 1]], [np.ones(2), [1, 1]], algorithm="combining")
    comm.Free()
    grid.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_lengths_that_differ_between_two_directions():
    """Each edge has one length at its two ends, but a rank sends longer blocks than it receives."""
    if SIZE % 2:
        return  # around a ring of odd length, the lengths cannot alternate
    comm = pycoll.Comm(WORLD).Create_cart([SIZE], [True])
    sent = [np.random.default_rng(rank).random((2, 3 + rank % 2)) for rank in range(SIZE)]
    expected = np.array([sent[RANK - 1][1], sent[(RANK + 1) % SIZE][0]])
    send, found = sent[RANK], np.zeros_like(expected)
    for _ in range(2):
        found[...] = 0
        comm.Neighbor_alltoall(send, found)
        assert (found == expected).all()
    comm.Free()


def test_many_neighbors():
    """With more than there is room for in a slot."""
    comm = pycoll.Comm(WORLD).Create_cart([SIZE], [True]).Create_neighborhood([(1,), (-1,)] * 600)
    send, found = np.arange(1200.0) + RANK, np.zeros(1200)
    expected = np.zeros(1200)
    MPI.Distgraphcomm.Neighbor_alltoall(comm, send, expected)
    comm.Neighbor_alltoall(send, found)
    assert (found == expected).all()
    comm.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
@pytest.mark.parametrize("count", [2, 3000])
def test_neighbors_on_one_side_only(count):
    """A rank may send longer blocks than it receives, if its neighbors are on one side."""
    comm = pycoll.Comm(WORLD).Create_cart([SIZE], [False]).Create_neighborhood([(1,)])
    sent, received = (
        np.ones((edges, count + rank)) for edges, rank in ((int(RANK < SIZE - 1), RANK), (int(RANK > 0), RANK - 1))
    )
    received[...] = 0
    comm.Neighbor_alltoall(sent, received)
    assert (received == 1).all()
    comm.Free()


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        ([(0, 1), (1,)], ValueError, r"offsets: \(1,\) has 1 numbers for a grid of 2 dimensions"),
        ([(0, 0.5)], TypeError, "offsets=0.5 is not an integer"),
        ([5], TypeError, "'int' object is not iterable"),
    ],
)
def test_wrong_offsets_on_one_rank(offsets, error, message):
    """All ranks raise an error."""
    grid = pycoll.Comm(WORLD).Create_cart([SIZE, 1], [True, True])
    if RANK == SIZE - 1:
        with pytest.raises(error, match=message):
            grid.Create_neighborhood(offsets)
    else:
        with pytest.raises(pycoll.MismatchError, match=f"rank {SIZE - 1} passed wrong offsets to Create_"):
            grid.Create_neighborhood([(0, 1)])
    grid.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_offsets_that_differ():
    grid = pycoll.Comm(WORLD).Create_cart([SIZE, 1], [True, True])
    with pytest.raises(pycoll.MismatchError, match="rank 1 passed other offsets to Create_neighborhood than rank 0"):
        grid.Create_neighborhood([(0, 1), (0, 2)] if RANK else [(0, 2), (0, 1)])  # the edges are the same
    grid.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_blocks_of_different_lengths_cannot_be_combined(monkeypatch):
    """Check that lengths which match at the two ends of each edge, but differ between edges, are found."""
    monkeypatch.setattr(settings, "CHECK", True)
    grid = pycoll.Comm(WORLD).Create_cart([SIZE, 1], [True, True])
    comm = grid.Create_neighborhood([(0, 1)])  # each rank is its own neighbor
    blocks = np.ones((1, 2 + (RANK == 1))), np.ones((1, 2 + (RANK == 1)))
    comm.Neighbor_alltoall(*blocks)
    with pytest.raises(pycoll.MismatchError, match="the calls of the ranks do not match"):
        comm.Neighbor_alltoall(*blocks, algorithm="combining")
    comm.Free()
    grid.Free()


def test_types_for_no_neighbors():
    """One edge from the last rank to the first one."""
    sources, destinations = [SIZE - 1] * (RANK == 0), [0] * (RANK == SIZE - 1)
    comm = pycoll.Comm(WORLD).Create_dist_graph_adjacent(sources, destinations)
    send, recv = np.arange(3.0), np.zeros(3)
    for _ in range(3):
        given, got = (
            [array, [3] * len(side), [0] * len(side), [MPI.DOUBLE] * len(side)]
            for array, side in ((send, destinations), (recv, sources))
        )
        comm.Neighbor_alltoallw(given, got)
        np.testing.assert_array_equal(recv, send * (RANK == 0))
    comm.Free()

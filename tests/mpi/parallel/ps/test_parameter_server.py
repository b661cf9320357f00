"""ParameterServer: equality with training in one process, staleness, waiting, early leavers, and leaks."""

import contextlib
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.base import settings
from pycoll.parallel import SGD, ParameterServer
from pycoll.runtime.attach import channels
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi
PLACES = {"beside": (1, True), "apart": (1, False), "two beside": (2, True), "two apart": (2, False)}
WAYS = {
    "sync, server": {"mode": "sync"},
    "sync, worker": {"mode": "sync", "update": "worker"},
    "sync, averages": {"mode": "sync", "update": "averages"},
    "bounded, server": {"mode": "bounded", "staleness": 2},
    "bounded, worker": {"mode": "bounded", "staleness": 1, "update": "worker"},
    "async": {"mode": "async"},
}
HOSTS = WORLD.allgather(MPI.Get_processor_name())
FEW_RANKS = pytest.mark.skipif(SIZE > 2, reason="takes long on more ranks")
LR = 0.5


@pytest.fixture(autouse=True)
def no_channel_left():
    before = len(channels)
    yield
    assert len(channels) == before


@contextlib.contextmanager
def memory(registered):
    """Let drivers allocate registered memory, or ordinary memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "REGISTERED", registered)
        yield


def arrange(place, ranks_per_worker=1, at_least=1):
    """Return the arguments for servers at this place, and the ranks of each worker; skip if there are too few."""
    servers, colocated = PLACES.get(place, place)
    working = range(SIZE if colocated else SIZE - servers)
    kin = [HOSTS[rank] if ranks_per_worker == "host" else rank // ranks_per_worker for rank in working]
    workers = [[rank for rank in working if kin[rank] == one] for one in dict.fromkeys(kin)]
    if at_least and len(workers) < max(at_least, servers if colocated else 1):
        pytest.skip(f"{SIZE} ranks make too few workers")
    return {"servers": servers, "colocated": colocated, "ranks_per_worker": ranks_per_worker}, workers


def number_in(workers):
    """Return the number of the worker to which this rank belongs; None if it is a server."""
    return next((number for number, ranks in enumerate(workers) if RANK in ranks), None)


def flat(arrays):
    return np.concatenate([array.reshape(-1) for array in arrays.values()])


def make_server(weights, momentum=0.0, update="server", **options):
    """Return a parameter server, and the optimizer that applies the averages if its steps return them, else None."""
    make = partial(SGD, lr=LR, momentum=momentum)
    if update == "averages":
        return ParameterServer(weights, update="worker", **options), make(weights)
    return ParameterServer(weights, optimizer=make, update=update, **options), None


def epoch(ps, counts, workers, gradients, mine=None):
    """Let worker i take counts[i] steps; return the parameters of this rank after each, staleness, and waits."""
    history = []
    if (number := number_in(workers)) is None:
        ps.serve()
    else:
        for step in range(counts[number]):
            averages = ps.step(gradients(step))
            assert (averages is None) == (mine is None)
            if mine:
                mine.step(averages)
            history.append(flat(ps.parameters))
    seen = history, ps.staleness, ps.waited
    ps.finish()
    return seen


# these use real numbers, and are compared up to rounding
def start(seed=0):
    random = np.random.default_rng(seed)
    return {"weight": random.normal(size=(5, 2)), "bias": random.normal(size=2)}


def backward(weights, step, ranks):
    """Return the gradients of a logistic regression, averaged over the rows in the batches of these ranks."""
    random = [np.random.default_rng([step, rank]) for rank in ranks]
    inputs, targets = (np.concatenate([one.uniform(size=(3, width)) for one in random]) for width in (5, 2))
    error = 1 / (1 + np.exp(-inputs @ weights["weight"] - weights["bias"])) - targets
    return {"weight": inputs.T @ error / len(inputs), "bias": error.mean(axis=0)}


@cache
def alone(ranks, steps):
    """Return the parameters after each step of one process with the batches of this number of ranks."""
    weights, velocity, history = start(), {"weight": 0.0, "bias": 0.0}, []
    for step in range(steps):
        for name, gradient in backward(weights, step, range(ranks)).items():
            velocity[name] = 0.9 * velocity[name] + gradient
            weights[name] = weights[name] - LR * velocity[name]
        history.append(flat(weights))
    return history


def train(steps, place, ranks_per_worker=1, **options):
    """Return the parameters after each step (on servers, only the last ones), and the ranks of each worker."""
    where, workers = arrange(place, ranks_per_worker)
    weights = start(seed=RANK)  # only the values of rank 0 are used
    ps, mine = make_server(weights, 0.9, **where, **options)
    with ps:
        history, *_ = epoch(ps, [steps] * SIZE, workers, lambda step: backward(weights, step, [RANK]), mine)
    return [*history[:-1], flat(weights)], workers


@pytest.mark.parametrize("update", ["server", "worker", "averages"])
@pytest.mark.parametrize("place, wide", [("beside", 1), ("apart", 2), ("two beside", 1), ("two apart", "host")])
def test_synchronous_training_is_that_of_one_process(update, place, wide):
    history, workers = train(50, place, wide, update=update)
    expected = alone(sum(map(len, workers)), 50)
    np.testing.assert_allclose(history, expected[-len(history) :], rtol=1e-10)
    everyone = WORLD.allgather([array.tobytes() for array in history])
    assert len({tuple(everyone[rank]) for ranks in workers for rank in ranks}) == 1
    assert len({theirs[-1] for theirs in everyone}) == 1
    if update != "averages":
        bounded, _ = train(8, place, wide, update=update, mode="bounded", staleness=0)
        assert [array.tobytes() for array in bounded] == everyone[0][8 - len(bounded) : 8]


WHOLE = 840  # divisible by all numbers up to 8, so that no sum or average is rounded, in any order
LIKES = {
    "a": ("f4", (3, 2)),
    "b": ("f2", 5),
    "c": ("f4", ()),
    "d": ("f8", (0, 3)),
    "e": ("c16", 2),
    "f": ("f8", (1, 4)),
}


def numbers():
    return {name: np.arange(np.prod(shape), dtype=dtype).reshape(shape) for name, (dtype, shape) in LIKES.items()}


def push(step, rank):
    """Return the gradients of a rank in a step; in half precision, they are the same on all ranks."""
    return {
        name: (np.arange(array.size).reshape(array.shape) + 2 * step + rank * (array.itemsize > 2)) % 3.0
        * (WHOLE if array.itemsize > 2 else 1)
        for name, array in numbers().items()
    }  # fmt: skip


def mean(step, ranks):
    """Return the average of the gradients of these ranks."""
    return {name: sum(push(step, rank)[name] for rank in ranks) / len(ranks) for name in LIKES}


def updates(mode, epochs, workers):
    """Return the applied averages if worker i takes epochs[n][i] steps; asynchronous ones apply in any order."""
    if mode == "async":
        pairs = [pair for counts in epochs for pair in zip(counts, workers)]
        return [mean(step, ranks) for count, ranks in pairs for step in range(count)]
    return [
        mean(step, [rank for count, ranks in zip(counts, workers) if count > step for rank in ranks])
        for counts in epochs
        for step in range(max(counts))
    ]


def applied(averages, momentum=0.0):
    """Return the parameters after these updates."""
    weights, velocity = numbers(), dict.fromkeys(LIKES, 0.0)
    for gradients in averages:
        for name, array in weights.items():
            velocity[name] = np.asarray(momentum * velocity[name] + gradients[name], array.dtype)
            array -= np.asarray(LR * velocity[name], array.dtype)
    return flat(weights)


def check_epochs(epochs, where, workers, mode="sync", **options):
    """Check that all ranks end each epoch with the parameters that result from all gradients so far."""
    weights, momentum = numbers(), 0.0 if mode == "async" or options.get("update") == "averages" else 0.5
    ps, mine = make_server(weights, momentum, mode=mode, **where, **options)
    with ps:
        for n, counts in enumerate(epochs, 1):
            _, behind, waited = epoch(ps, counts, workers, lambda step: push(step, RANK), mine)
            np.testing.assert_array_equal(flat(weights), applied(updates(mode, epochs[:n], workers), momentum))
            if (number := number_in(workers)) is not None:
                assert len(behind) == len(waited) == counts[number] + 1
                assert mode == "async" or max(behind) <= options.get("staleness", 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place, ranks_per_worker", [("beside", 1), ("apart", 2)])
@pytest.mark.parametrize("early", ["none", "first", "last", "one by one", "all"])
def test_workers_that_leave_early_and_training_that_goes_on(way, place, ranks_per_worker, early):
    """After an epoch with different numbers of steps, training continues with the same momentum for all."""
    where, workers = arrange(place, ranks_per_worker)
    some, last = [4] * (len(workers) - 1), len(workers) - 1
    counts = {"none": [3, *some], "first": [0, *some], "last": [*some, 0], "one by one": [*range(last + 1)]}
    check_epochs([counts.get(early, [0] * (last + 1)), [2] * (last + 1)], where, workers, **WAYS[way])


@examples(15)
@given(
    st.sampled_from([place for place in PLACES.values() if place[1] or place[0] < SIZE]),
    st.sampled_from([1, 2, 3, "host"]),
    st.sampled_from([*WAYS.values()]),
    st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE),
    st.booleans(),
)
def test_drawn(together, place, ranks_per_worker, way, counts, registered):
    def run():
        where, workers = arrange(place, ranks_per_worker, at_least=0)
        if where["servers"] <= len(workers) or not where["colocated"]:
            with memory(registered):
                check_epochs([counts[: len(workers)]], where, workers, **way)

    together(run)


def real_gradients(step):
    """Return long gradients of two dtypes, whose sums are rounded, so that they depend on the order."""
    random = np.random.default_rng([step, RANK])
    return {"w": random.normal(size=30_001), "b": random.normal(size=(7, 3)).astype("f4"), "c": random.normal(size=2)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place, ranks_per_worker", [("beside", 1), ("apart", 1), ("two beside", 1), ("two apart", 2)])
def test_lent_vectors_give_the_same_bits_as_messages(way, place, ranks_per_worker):
    where, workers = arrange(place, ranks_per_worker)
    if way == "async" and len(workers) > 1:
        pytest.skip("updates apply in any order")
    results = []
    for registered in (True, False):
        weights = {name: np.zeros_like(array) for name, array in real_gradients(0).items()}
        with memory(registered):
            ps, mine = make_server(weights, 0.9, **where, **WAYS[way])
        with ps:
            for counts in [[8] * SIZE, [3, *[5] * SIZE]]:
                history, *_ = epoch(ps, counts, workers, real_gradients, mine)
                results.append([flat(weights), *(history if WAYS[way].get("mode") == "sync" else [])])
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])


@pytest.mark.parametrize("place", ["beside", "apart", "two apart"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_pushes_without_pulls(place, mode):
    """There are fewer vectors to lend than pushes; the other pushes are messages."""
    where, workers = arrange(place)
    weights, steps = {"w": np.zeros(20_000)}, 5
    with ParameterServer(weights, optimizer=partial(SGD, lr=0.5), mode=mode, **where) as ps:
        for _ in range(2):
            if number_in(workers) is None:
                ps.serve()
            else:
                for step in range(steps):
                    ps.push({"w": np.full(20_000, step + 1.0)})
                ps.pull()
                ps.step({"w": np.zeros(20_000)})
            ps.finish()
    times = len(workers) if mode == "async" else 1
    np.testing.assert_array_equal(weights["w"], -0.5 * 2 * times * sum(range(steps + 1)))


def test_a_worker_without_shared_memory(monkeypatch):
    """One worker cannot lend its vectors, and the others can."""
    where, workers = arrange("apart", at_least=2)
    weights = numbers()
    with monkeypatch.context() as patch:
        if RANK == 1:
            patch.setattr(MPI, "Get_processor_name", lambda: "another host")
        ps, _ = make_server(weights, **where)
    with ps:
        epoch(ps, [4] * SIZE, workers, lambda step: push(step, RANK))
    np.testing.assert_array_equal(flat(weights), applied(updates("sync", [[4] * SIZE], workers)))


def behind_the_others(workers, steps, step):
    """Return gradients; the last worker stays in each step until all others have begun the next one."""
    *others, last = [ranks[0] for ranks in workers]
    if RANK == last and step + 1 < steps:
        for rank in others:
            WORLD.recv(source=rank)
    elif RANK != last and step > 0:
        WORLD.send(None, last)
    return push(step, RANK)


@pytest.mark.parametrize("place", ["beside", "apart"])
@pytest.mark.parametrize("staleness", [1, 2, 3])
@pytest.mark.parametrize("update", ["server", "worker"])
def test_staleness_with_a_slow_worker(place, staleness, update):
    """The parameters contain exactly the updates that the reported staleness says."""
    where, workers = arrange(place, at_least=2)
    ps, _ = make_server(numbers(), mode="bounded", staleness=staleness, update=update, **where)
    with ps:
        history, behind, waited = epoch(ps, [7] * SIZE, workers, partial(behind_the_others, workers, 7))
    for step, weights in enumerate(history, 1):
        done = updates("bounded", [[step - behind[step]] * SIZE], workers)
        np.testing.assert_array_equal(weights, applied(done))
    assert max(behind) <= staleness
    assert not any(waited[: staleness + 1])
    if number_in(workers[:-1]) is not None:
        assert min(behind[1:7]) > 0


def test_fast_workers_wait_for_a_slow_one(monkeypatch):
    """In mode "sync", fast workers wait; the slow worker stays in each step until the others wait."""
    where, workers = arrange("apart", at_least=2)
    *others, last = [ranks[0] for ranks in workers]
    ps, _ = make_server(numbers(), **where)
    if RANK in others:
        wait, sent = ps._link._wait, []

        def waiting(*given):
            if len(sent) < ps._link.step:
                sent.append(WORLD.send(None, last))
            wait(*given)

        monkeypatch.setattr(ps._link, "_wait", waiting)

    def gradients(step):
        for rank in others if RANK == last else ():
            WORLD.recv(source=rank)
        return push(step, RANK)

    with ps:
        _, _, waited = epoch(ps, [4] * SIZE, workers, gradients)
    if RANK in others:
        assert len(waited) == 5 and all(waited[1:])


@pytest.mark.parametrize("place, wide, late", [("beside", 1, -1), ("apart", 1, -1), ("beside", 1, 0), ("apart", 2, 0)])
@pytest.mark.parametrize("staleness", [2, 3, None])
def test_workers_go_on_before_a_late_one_begins(place, wide, late, staleness):
    """They proceed to the staleness bound, or to the end in mode "async"; a late worker 0 serves meanwhile."""
    where, workers = arrange(place, wide, at_least=2)
    late, ahead = workers[late], staleness or 5
    others = [rank for ranks in workers if ranks != late for rank in ranks]

    def gradients(step):
        if RANK in late and step == 0:
            for tag in (1, ahead):  # tag 1: the first step needs no answer
                while tag == ahead and not all(WORLD.iprobe(rank, tag) for rank in others):
                    ps.progress()
                for rank in others:
                    WORLD.recv(source=rank, tag=tag)
        elif RANK in others and step in (1, ahead):
            for rank in late:
                WORLD.send(None, rank, step)
        return push(step, RANK)

    counts = [ahead + (ranks != late) for ranks in workers]
    weights, mode = numbers(), {"mode": "bounded", "staleness": staleness} if staleness else {"mode": "async"}
    ps, _ = make_server(weights, **mode, **where)
    with ps:
        _, behind, waited = epoch(ps, counts, workers, gradients)
    np.testing.assert_array_equal(flat(weights), applied(updates(mode["mode"], [counts], workers)))
    if RANK in others:
        assert behind[: ahead + 1] == [*range(ahead + 1)]
        assert staleness is None or waited[: ahead + 1] == [0.0] * (ahead + 1)


def test_asynchronous_training_converges():
    """Losses with a common minimum converge to it, with long messages."""
    where, workers = arrange("beside")
    weights, goal = {"w": np.zeros(20_000)}, np.arange(20_000) % 7 - 3.0
    slope = np.random.default_rng(RANK).uniform(0.1, 1, goal.size)
    with ParameterServer(weights, optimizer=partial(SGD, lr=0.5 / SIZE), mode="async", **where) as ps:
        epoch(ps, [60] * SIZE, workers, lambda step: {"w": slope * (weights["w"] - goal)})
    assert np.abs(weights["w"] - goal).max() < 0.3


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("place, ranks_per_worker", [("apart", 1), ("two apart", 1), ("apart", 2)])
def test_what_workers_and_servers_send(place, ranks_per_worker, registered):
    """They send the gradients and alike answers, but only headers and clocks if vectors are lent."""
    where, workers = arrange(place, ranks_per_worker)
    weights = {"a": np.zeros(30_001), "b": np.zeros(13), "c": np.zeros(7, "f4")}
    data = 0 if registered and len(set(HOSTS)) == 1 else 30_014 * 8 + 7 * 4
    with memory(registered):
        ps, _ = make_server(weights, **where)
    with ps, pycoll.traffic() as sent:
        for _ in range(3) if number_in(workers) is not None else ():
            ps.step(weights)
        if number_in(workers) is None:
            ps.serve()
            answer = data / where["servers"] + 8 * len(workers)  # including the clocks
            assert abs(sent.nbytes / (3 * len(workers)) - answer) <= 8 + 4
        elif ranks_per_worker == 1:
            header = 8 * 3  # the step, and the position of the vector of each dtype
            assert sent.nbytes == 3 * (data + where["servers"] * header)
        ps.finish()


def test_another_communicator():
    half, weights = MPI.Intracomm(WORLD.Split(RANK % 2, -RANK)), numbers()
    ps, _ = make_server(weights, comm=half, colocated=True)
    with ps:
        for step in range(3):
            ps.step(push(step, half.rank))
            assert pycoll.allreduce(np.ones(1), comm=half) == half.size
        ps.finish()
    np.testing.assert_array_equal(flat(weights), applied([mean(step, range(half.size)) for step in range(3)]))
    half.Free()


def test_choices_that_are_refused():
    refused = {
        "mode='fast' is not one of: sync, async, bounded": {"mode": "fast"},
        "staleness=-1 is invalid with mode='bounded'": {"mode": "bounded", "staleness": -1},
        "staleness=1 is invalid with mode='sync'": {"staleness": 1},
        "update='both' is neither": {"update": "both"},
        "update='server' needs an optimizer": {"optimizer": None},
        "mode='bounded' needs an optimizer": {"optimizer": None, "update": "worker", "mode": "bounded"},
        "mode='async' needs update='server'": {"update": "worker", "mode": "async"},
        "servers=0 leaves": {"servers": 0},
        f"servers={SIZE} leaves 0 of {SIZE} ranks for workers": {"servers": SIZE, "colocated": False},
        f"servers={SIZE + 1}: there are only {SIZE} workers": {"servers": SIZE + 1},
        "servers=2: there are only 1 workers": {"servers": 2, "ranks_per_worker": SIZE},
        "ranks_per_worker=0 is neither a positive number nor 'host'": {"ranks_per_worker": 0},
    }
    for message, options in refused.items():
        with pytest.raises(ValueError, match=message):
            ParameterServer({"a": np.zeros(99)}, **{"optimizer": SGD, "colocated": True} | options)


@pytest.mark.skipif(SIZE == 1, reason="there is no other rank")
def test_parameters_that_are_refused():
    one, two = np.zeros(3), np.zeros((2, 2))
    refused = {
        "1 differs.* rank 0 has 'b': float64 .2, 2., rank .* has nothing": {"a": one},
        "1 differs.* has 'b': float32": {"a": one, "b": two.astype("f4")},
    }
    for message, other in refused.items():
        with pytest.raises(ValueError, match=f"parameter {message}"):
            make_server(other if SIZE - 1 == RANK else {"a": one, "b": two}, colocated=True)
    with pytest.raises(ValueError, match="servers=2: there are only 1 elements"):
        make_server({"b": np.zeros(1, "f4")}, servers=2, colocated=True)
    with pytest.raises(TypeError, match="int64"):
        make_server({"a": np.arange(8)})


@pytest.mark.parametrize("place, ranks_per_worker", [("beside", 2), ("apart", 1)])
def test_calls_that_are_refused(place, ranks_per_worker):
    where, workers = arrange(place, ranks_per_worker)
    weights, right = numbers(), push(0, RANK)
    refused = {
        "different names: 'f'": {name: right[name] for name in "abcde"},
        r"'b'\] has shape \(2, 3\), but its parameter has \(5,\)": {**right, "b": np.ones((2, 3))},
        "imaginary parts would be lost": {**right, "f": right["f"] * 1j},
    }
    works = number_in(workers) is not None
    ps, _ = make_server(weights, **where)
    with ps:
        with pytest.raises(RuntimeError, match=f"rank {RANK} is a " + ("worker" if works else "server")):
            ps.serve() if works else ps.step(right)
        for message, gradients in refused.items() if RANK == 0 else ():
            with pytest.raises((ValueError, TypeError), match=message):
                ps.step(gradients)
        epoch(ps, [1] * SIZE, workers, lambda step: right)
    np.testing.assert_array_equal(flat(weights), applied(updates("sync", [[1] * SIZE], workers)))


@pytest.mark.parametrize("cycles", [30, pytest.param(1100, marks=[pytest.mark.slow, FEW_RANKS])])
@pytest.mark.parametrize("mode, place", [("sync", "beside"), ("async", "apart")])
def test_what_is_freed_leaves_nothing(mode, place, cycles):
    """Freed servers leave no memory or communicators, of which MPICH has at most 2048."""
    where, workers = arrange(place)

    def repeat(times):
        for n in range(times):
            ps, _ = make_server({"w": np.zeros(4)}, mode=mode, **where)
            with ps:
                epoch(ps, [n % 3] * SIZE, workers, lambda step: {"w": np.ones(4)})
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4  # KiB

    before = repeat(20)
    assert repeat(cycles) - before < 1000

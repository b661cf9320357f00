"""What the ranks compare at the first use of a communicator."""

from dataclasses import replace

import numpy as np
import pytest

import pycoll
from pycoll.base import domains, settings
from pycoll.base.errors import MismatchError
from pycoll.runtime.attach import attach
from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import PRIMITIVES, algorithm, algorithms_of, find
from pycoll.tune.benchmark_case import MEASURED, Case
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi


def one_by_one(rank, size, root):
    relative = (rank - root) % size
    if relative > 0:
        yield (Recv((rank - 1) % size, [0]),)
    if relative < size - 1:
        yield (Send((rank + 1) % size, [0]),)


def delegating(rank, size, root):
    yield from one_by_one(rank, size, root)


@pytest.fixture
def comm():
    comm = WORLD.Dup()
    yield comm
    comm.Free()


@pytest.fixture
def register(monkeypatch):
    """Return a function that registers an algorithm of this program under the name relay."""

    def registered(generator):
        monkeypatch.setattr(generator, "__module__", "bcast")
        monkeypatch.setattr(generator, "__name__", "relay")
        algorithm()(generator)

    yield registered
    PRIMITIVES["bcast"].algorithms.pop("relay", None)


def test_an_own_algorithm_on_all_ranks(comm, register):
    register(one_by_one)
    result = pycoll.bcast(np.full(3, float(RANK)), comm=comm, algorithm="relay")
    np.testing.assert_array_equal(result, np.zeros(3))


@pytest.mark.skipif(SIZE == 1, reason="all ranks are the same")
@pytest.mark.parametrize("others", [None, delegating])
def test_own_algorithms_that_differ(comm, register, others):
    """The error is raised on all ranks; the communicator can be used when the algorithms are the same."""
    if RANK == SIZE - 1:
        register(one_by_one)
    elif others:
        register(others)
    mine = "bcast.relay" if RANK == SIZE - 1 or others else "none"
    complaint = rf"rank {SIZE - 1} .* registered algorithms .* differ from those of rank 0; rank {RANK} has {mine}:"
    with pytest.raises(MismatchError, match=complaint):
        pycoll.bcast(np.ones(3), comm=comm, algorithm="ring")
    register(one_by_one)
    attach(comm)


@pytest.mark.skipif(SIZE == 1, reason="all ranks are the same")
def test_versions_of_pycoll_that_differ(comm, monkeypatch):
    with monkeypatch.context() as other:
        if RANK == SIZE - 1:
            other.setattr("pycoll.runtime.facts.__version__", "0.0.9")
            other.setattr("pycoll.runtime.facts._domains", lambda: ((7, 7, 7), "what it tells may mean something else"))
        mine = "0.0.9" if RANK == SIZE - 1 else pycoll.__version__
        complaint = (
            f"rank {SIZE - 1} has another version of pycoll than rank 0; rank {RANK} of {SIZE} has {mine}: install"
        )
        with pytest.raises(MismatchError, match=complaint):
            pycoll.bcast(np.ones(3), comm=comm)
    attach(comm)


@pytest.mark.skipif(SIZE == 1, reason="all ranks are the same")
def test_a_reference_executor_on_one_rank(comm, monkeypatch):
    """It does not cut messages as the others do."""
    with monkeypatch.context() as other:
        if RANK == SIZE - 1:
            other.setattr(settings, "EXECUTOR", "reference")
        with pytest.raises(MismatchError, match=f"rank {SIZE - 1} has another PYCOLL_EXECUTOR than rank 0"):
            pycoll.bcast(np.ones(3), comm=comm)
    attach(comm)


def with_domains(domains):
    """Return a communicator whose ranks are in these NUMA domains."""
    comm = WORLD.Dup()
    channel = attach(comm)
    channel.facts = replace(channel.facts, domains=tuple((0, numa, 0) for numa in domains))
    return comm


@pytest.mark.parametrize(
    "primitive", [name for name in MEASURED if any(one.levels for one in algorithms_of(name).values())]
)
@pytest.mark.parametrize("nbytes", [4, 1000, 200_000])
def test_levels(primitive, nbytes):
    comm = with_domains([rank * 2 // SIZE for rank in range(SIZE)] if SIZE % 2 == 0 else range(SIZE))
    for name in ("hierarchical", "hierarchical:levels=numa", "hierarchical:levels=node+socket+numa+l3"):
        case = Case(comm, primitive, nbytes)
        assert case.wrong(case.call(name), case.call_native()) == 0
    comm.Free()


@pytest.mark.skipif(SIZE != 4 or attach(WORLD).facts.host_count > 1, reason="needs four ranks on one host")
def test_two_domains_of_two_ranks():
    comm, vector, name = with_domains([0, 0, 1, 1]), np.arange(64.0), "hierarchical:levels=numa"
    assert attach(comm).facts.hosts_for(find("allreduce", name)) == ((0,), (0,), (1,), (1,))
    with pycoll.traffic() as sent:
        result = pycoll.allreduce(vector + RANK, comm=comm, algorithm=name)
    np.testing.assert_array_equal(result, 4 * vector + 6)
    # half of the vector within the domain and a quarter between the domains, there and back
    assert (sent.messages, sent.nbytes) == (4, 2 * (256 + 128))
    comm.Free()


@pytest.mark.skipif(SIZE == 1, reason="needs two ranks")
def test_domains_of_the_wrong_form(monkeypatch):
    if RANK == 1:
        monkeypatch.setenv(domains.VARIABLE, "x")
    domains.domains.cache_clear()
    comm = WORLD.Dup()
    which = "='x'" if RANK == 1 else " of rank 1"
    message = f"PYCOLL_PLACE{which} is not of the form socket=0"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            pycoll.barrier(comm=comm)
    domains.domains.cache_clear()
    comm.Free()


@pytest.mark.skipif(SIZE < 3 or attach(WORLD).facts.host_count > 1, reason="needs three ranks on one host")
def test_a_level_that_splits_a_host_unevenly():
    comm = with_domains([0] + [1] * (SIZE - 1))
    parts = f"1 and {SIZE - 1}"
    name, message = "hierarchical:levels=node+numa", f"the level numa splits host 0 unevenly, into domains of {parts} r"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            pycoll.allreduce(np.ones(3), np.empty(3), comm=comm, algorithm=name)
        with pytest.raises(ValueError, match=message):
            pycoll.explain("allreduce", nbytes=12, comm=comm, algorithm=name)
    comm.Free()

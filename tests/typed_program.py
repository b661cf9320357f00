"""Program that uses every public name of pycoll with the expected types; it runs on any number of ranks.

Type checkers must accept the program with their strictest settings (see tests/pure/test_init_types.py), and it must run
without errors (see tests/jobs/test_init_types.py).
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.simulate import Link, Network

pycoll.abort_on_exception()
WORLD: MPI.Intracomm = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
A = np.arange(4 * SIZE, dtype=np.float64)
B = np.empty_like(A)
COUNTS = [4] * SIZE
TYPES = [MPI.DOUBLE] * SIZE


def blocking(comm: MPI.Intracomm) -> None:
    """Call the blocking functions, with and without an algorithm."""
    names: list[pycoll.AlgorithmName] = pycoll.algorithms("allreduce")
    for name in names:
        pycoll.allreduce(A, B, op="sum", comm=comm, algorithm=name)
        assert np.array_equal(B, SIZE * A)
    own = pycoll.AlgorithmName("ring")
    pycoll.allreduce(MPI.IN_PLACE, B, MPI.MAX, algorithm=own)
    pycoll.barrier(comm=comm, algorithm="tree")
    half = comm.Split(comm.rank % 2)  # a Comm, for type checkers
    pycoll.allreduce(A, B, comm=half)
    half.Free()
    pycoll.bcast(B, root=0, algorithm="native")
    everything = pycoll.allgather(A, algorithm="bruck")
    registered, ones = pycoll.zeros((SIZE, 2), comm=comm), pycoll.empty(3, np.float32, comm=comm)
    assert pycoll.alltoall(registered, comm=comm).shape == registered.shape
    pycoll.free(ones, comm=comm)
    pycoll.free(registered, comm=comm)
    assert everything.shape == (SIZE, 4 * SIZE)
    pycoll.allgatherv(A[:4], [None, COUNTS])
    pycoll.alltoall(A, B, algorithm="pairwise")
    pycoll.alltoallv([A, COUNTS], [B, COUNTS])
    pycoll.alltoallw([A, COUNTS, _places(), TYPES], [B, COUNTS, _places(), TYPES])
    pycoll.exscan(A, op="min")
    pycoll.scan(A, op="prod")
    pycoll.gather(A[:4], root=SIZE - 1)
    pycoll.gatherv(A[:4], [None, COUNTS] if RANK == 0 else None)
    pycoll.reduce(A, op=pycoll.AVG)
    pycoll.reduce(A, op=pycoll.EXACT_SUM)
    pycoll.reduce_scatter(A, recvcounts=COUNTS, algorithm="pairwise")
    pycoll.scatter(A if RANK == 0 else None, np.empty(4))
    pycoll.scatterv([A, COUNTS] if RANK == 0 else None, np.empty(4))


def objects(comm: MPI.Intracomm) -> None:
    """Call the functions and the methods for Python objects."""
    assert pycoll.bcast_object({"a": 1}, root=0, comm=comm, algorithm="tree") == {"a": 1}
    assert pycoll.scatter_object([RANK] * SIZE) == 0
    gathered: list[Any] | None = pycoll.gather_object(RANK, root=0)
    assert gathered == (list(range(SIZE)) if RANK == 0 else None)
    everything: list[Any] = pycoll.allgather_object("text", algorithm="ring")
    assert everything == pycoll.alltoall_object(["text"] * SIZE)
    assert pycoll.allreduce_object(1, lambda left, right: left + right) == SIZE
    pycoll.reduce_object(1.5, MPI.MAX, root=0)
    pycoll.scan_object(RANK)
    pycoll.exscan_object(RANK)
    ours = pycoll.Comm(comm)
    total: int = ours.allreduce(1, algorithm="ring")
    assert total == SIZE and ours.gather((1, 2), 0) == ([(1, 2)] * SIZE if RANK == 0 else None)
    try:
        ours.bcast(sys.stdout if RANK == 0 else None)
    except pycoll.RemoteError as error:
        assert "TypeError" in str(error)
    except TypeError:
        assert RANK == 0


def neighbors(comm: MPI.Intracomm) -> None:
    """Exchange blocks with the neighbors in a ring."""
    grid = comm.Create_cart([SIZE], [True])
    ours: pycoll.Cartcomm = pycoll.Comm(comm).Create_cart([SIZE], [True])
    two, result = np.ones(2), np.empty(2)
    pycoll.neighbor_allgather(two, comm=grid)
    pycoll.neighbor_allgatherv(two, [None, [2, 2]], comm=grid)
    pycoll.neighbor_alltoall(two, result, comm=grid, algorithm="direct")
    pycoll.neighbor_alltoallv([two, [1, 1]], [None, [1, 1]], comm=grid)
    typed = [1, 1], [0, 8], [MPI.DOUBLE] * 2
    pycoll.neighbor_alltoallw([two, *typed], [result, *typed], comm=grid)
    pycoll.waitall(
        [
            pycoll.ineighbor_allgather(two, comm=grid),
            pycoll.ineighbor_allgatherv(two, [None, [2, 2]], comm=grid),
            pycoll.ineighbor_alltoall(two, comm=grid),
            pycoll.ineighbor_alltoallv([two, [1, 1]], [None, [1, 1]], comm=grid),
            pycoll.ineighbor_alltoallw([two, *typed], [result, *typed], comm=grid),
        ]
    )
    made = [
        pycoll.neighbor_allgather_init(two, comm=grid),
        pycoll.neighbor_allgatherv_init(two, [None, [2, 2]], comm=grid),
        pycoll.neighbor_alltoall_init(two, comm=grid),
        pycoll.neighbor_alltoallv_init([two, [1, 1]], [None, [1, 1]], comm=grid),
        pycoll.neighbor_alltoallw_init([two, *typed], [result, *typed], comm=grid),
    ]
    for request in made:
        request.Free()
    ours.Neighbor_alltoall(two, result, algorithm="native")
    ours.Ineighbor_alltoall(two, result).Wait()
    assert result.tolist() == [1, 1]
    received: list[tuple[int, np.ndarray]] = pycoll.sparse_exchange([0], [two], comm=comm)
    assert len(received) == (SIZE if RANK == 0 else 0)
    received = ours.sparse_exchange([0], [[two, MPI.DOUBLE]])
    assert len(received) == (SIZE if RANK == 0 else 0)


def _places() -> list[int]:
    return [32 * rank for rank in range(SIZE)]


def nonblocking() -> None:
    """Start a request of each kind, and complete the requests in each way."""
    pycoll.attach()
    with pycoll.progress_thread():
        requests: list[pycoll.Request] = [
            pycoll.ibarrier(),
            pycoll.ibcast(A.copy()),
            pycoll.iallgather(A, algorithm="ring"),
            pycoll.iallgatherv(A[:4], [None, COUNTS]),
            pycoll.iallreduce(A, op="max"),
            pycoll.ialltoall(A),
            pycoll.ialltoallv([A, COUNTS], [np.empty_like(A), COUNTS]),
            pycoll.ialltoallw([A, COUNTS, _places(), TYPES], [np.empty_like(A), COUNTS, _places(), TYPES]),
            pycoll.iexscan(A),
            pycoll.iscan(A),
            pycoll.igather(A),
            pycoll.igatherv(A[:4], [None, COUNTS] if RANK == 0 else None),
            pycoll.ireduce(A),
            pycoll.ireduce_scatter(A),
            pycoll.iscatter(A, np.empty(4)),
            pycoll.iscatterv([A, COUNTS], np.empty(4)),
        ]
        complete: bool = requests[0].Test()
        done: tuple[bool, Any] = requests[0].test() if not complete else (True, None)
        place, result = pycoll.waitany(requests[2:3])
        assert place == 0 and result.shape == (SIZE, 4 * SIZE) and isinstance(done[0], bool)
        results: list[Any] = pycoll.waitall(requests[3:])
        assert np.array_equal(results[1], A)
        while not pycoll.testall(requests[:2])[0]:
            pass
        index, flag, value = pycoll.testany(requests)  # all are inactive
        assert (index, flag, value) == (MPI.UNDEFINED, True, None)


def persistent() -> None:
    """Create, start and free a persistent collective of each kind."""
    collectives: list[pycoll.Persistent] = [
        pycoll.barrier_init(),
        pycoll.bcast_init(B, algorithm="tree"),
        pycoll.allgather_init(A, np.empty((SIZE, 4 * SIZE))),
        pycoll.allgatherv_init(A[:4], [None, COUNTS]),
        pycoll.allreduce_init(A, B, op="sum"),
        pycoll.alltoall_init(A, B),
        pycoll.alltoallv_init([A, COUNTS], [B, COUNTS]),
        pycoll.alltoallw_init([A, COUNTS, _places(), TYPES], [B, COUNTS, _places(), TYPES]),
        pycoll.exscan_init(A),
        pycoll.scan_init(A),
        pycoll.gather_init(A),
        pycoll.gatherv_init(A[:4], [None, COUNTS] if RANK == 0 else None),
        pycoll.reduce_init(A),
        pycoll.reduce_scatter_init(A),
        pycoll.scatter_init(A, np.empty(4)),
        pycoll.scatterv_init([A, COUNTS], np.empty(4)),
    ]
    for collective in collectives:
        with collective as started:
            started.Start()
            started.Wait()
            pycoll.startall([started])


def messages() -> None:
    """Exchange messages with the neighbors in a ring."""
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    found = np.empty_like(A)
    pycoll.sendrecv(A, right, recvbuf=found, source=left)
    outgoing: MPI.Request = pycoll.isend(A, right, tag=1)
    incoming: MPI.Request = pycoll.irecv(found, left, tag=1)
    pycoll.waitall([outgoing, incoming])
    if RANK % 2 == 0 and RANK + 1 < SIZE:
        pycoll.send(A, right)
    elif RANK % 2:
        pycoll.recv(found, left)
    assert np.array_equal(found, A)


def communicators() -> None:
    """Call the methods of pycoll.Comm like the methods of mpi4py."""
    comm: pycoll.Comm = pycoll.Comm(WORLD)
    grid: pycoll.Cartcomm = comm.Create_cart([comm.size]).Sub([True])
    others: list[pycoll.Graphcomm | pycoll.Distgraphcomm] = [
        comm.Create_graph([*range(1, comm.size + 1)], [*range(comm.size)]),
        comm.Create_dist_graph_adjacent([], []),
        grid.Create_neighborhood([(0,), (1,)]),
    ]
    for made in (grid, *others):
        made.Free()
    comm.algorithm["Allreduce"] = "ring"
    comm.Allreduce([A, MPI.DOUBLE], [B, MPI.DOUBLE], op=MPI.SUM, algorithm="tree")
    request: pycoll.Request = comm.Iallreduce(A, B, op="max")
    request.Wait()
    half: MPI.Intracomm = comm.Split(RANK % 2)
    half.Free()


def tools() -> None:
    """Explain, count, trace and simulate."""
    assert pycoll.explain("bcast", nbytes=8).ranks == SIZE and pycoll.__version__
    with pycoll.traffic() as sent:
        pycoll.allgather(A)
    bytes_sent: int = sent.nbytes
    assert bytes_sent >= 0
    with tempfile.TemporaryDirectory() as directory, pycoll.trace(directory, events=1000):
        with pycoll.trace.phase("all-reduce"):
            pycoll.allreduce(A)
        begin: int = pycoll.trace.now()
        assert begin > 0
    network: Network = pycoll.simulate.Network(between=Link(alpha=1e-6))
    simulated = pycoll.simulate("bcast", algorithm="tree", ranks=4, nbytes=8, network=network)
    seconds: float = simulated.time
    assert seconds > 0 and simulated.ends.shape == (4,)
    found = pycoll.synthesize("torus:2x2", "allreduce", nbytes=64, network=Network())
    assert found.time > found.bound and found.algorithm.name == "synthesized"


def in_one_process() -> None:
    def program(comm: pycoll.LocalComm) -> float:
        comm.Allreduce(np.ones(3), total := np.empty(3), algorithm="ring")
        size: int = comm.Get_size()
        return float(total[0]) - size

    results: list[float] = pycoll.local(program, ranks=3)
    assert results == [0.0] * 3


def errors() -> None:
    """Catch the exceptions that collectives raise."""
    try:
        pycoll.allreduce(A)
    except pycoll.RankFailed as error:
        ranks: tuple[int, ...] = error.ranks
        sys.exit(f"{ranks} have failed: {error}")
    except (pycoll.CollectiveInterrupted, pycoll.CollectiveTimeout, pycoll.MismatchError) as error:
        sys.exit(str(error))
    if "--gpu" in sys.argv:
        device: int = pycoll.select_device()
        print(device)


if __name__ == "__main__":
    blocking(WORLD)
    objects(WORLD)
    neighbors(WORLD)
    nonblocking()
    persistent()
    messages()
    communicators()
    tools()
    in_one_process()
    errors()
    if RANK == 0:
        print("all public names used")

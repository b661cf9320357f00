"""Sort distributed numbers by a sample sort: all-gather, all-to-all and gather of blocks of different lengths.

Run it with ``mpiexec -n 4 python examples/varying.py``.
"""

import numpy as np
from mpi4py import MPI

import pycoll


def numbers(who: int) -> np.ndarray:
    """Return the input of a rank; every rank has a different number of elements."""
    return np.random.default_rng(who).normal(size=10_000 + 1000 * who)


pycoll.abort_on_exception()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
mine = np.sort(numbers(rank))

# every rank gets the samples of all ranks, one sample for each hundred elements
counts = [len(numbers(who)) // 100 for who in range(size)]
samples = pycoll.allgatherv(mine[::100][: counts[rank]].copy(), [None, counts])
splitters = np.quantile(samples, np.arange(1, size) / size)

# exchange the numbers of elements, and then the elements
ends = np.searchsorted(mine, splitters)
sendcounts = np.diff(ends, prepend=0, append=len(mine))
recvcounts = pycoll.alltoall(sendcounts)
bucket = np.sort(pycoll.alltoallv([mine, sendcounts], [None, recvcounts]))

# the root collects the sorted buckets
lengths = pycoll.allgather(np.array([len(bucket)])).ravel()
result = pycoll.gatherv(bucket, [None, lengths] if rank == 0 else None, root=0)
if rank == 0:
    expected = np.sort(np.concatenate([numbers(who) for who in range(size)]))
    assert np.array_equal(result, expected)
    print(f"{len(result)} numbers are sorted; lengths of the buckets: {', '.join(map(str, lengths))}")
else:
    assert result is None

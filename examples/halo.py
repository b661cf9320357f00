"""Smooth a field that is divided among the ranks: each step needs the halo, the points around the part of a rank.

The neighbors at the corners take part, too. The result is compared with that of one process.
Run it with ``mpiexec -n 4 python examples/halo.py``.
"""

from itertools import product

import numpy as np
from mpi4py import MPI

import pycoll

POINTS = 6  # of a rank in each dimension
STEPS = 5

pycoll.abort_on_exception()
world = pycoll.Comm(MPI.COMM_WORLD)


def neighbors(grid: pycoll.Cartcomm, offset: tuple[int, ...]) -> int | None:
    """Return the rank at this offset from the own place; None outside of the grid."""
    place = [here + step for here, step in zip(grid.coords, offset)]
    inside = all(period or 0 <= at < side for at, side, period in zip(place, grid.dims, grid.periods))
    return grid.Get_cart_rank(place) if inside else None


def part(shape: tuple[int, ...], offset: tuple[int, ...], places: dict[int, int]) -> MPI.Datatype:
    """Return the datatype of one face, edge or corner: `places` says where it begins for each step of its offset."""
    sizes = [1 if step else POINTS for step in offset]
    return MPI.DOUBLE.Create_subarray(shape, sizes, [places[step] for step in offset]).Commit()


def smooth(field: np.ndarray) -> np.ndarray:
    """Return the mean of each point and the points around it, without those at the border."""
    moved = product((0, 1, 2), repeat=field.ndim)
    inner = [side - 2 for side in field.shape]
    parts = [field[tuple(slice(at, at + side) for at, side in zip(start, inner))] for start in moved]
    return sum(parts) / len(parts)


def on_all_ranks(dimensions: int, periodic: bool) -> float:
    """Smooth a field on all ranks, and return the largest difference from one process."""
    dims = MPI.Compute_dims(world.size, dimensions)
    grid = world.Create_cart(dims, [periodic] * dimensions)
    whole = np.random.default_rng(dimensions).normal(size=[POINTS * side for side in dims])
    mine = tuple(slice(POINTS * at, POINTS * (at + 1)) for at in grid.coords)
    block = np.zeros([POINTS + 2] * dimensions)
    inside = (slice(1, -1),) * dimensions
    block[inside] = whole[mine]

    # what goes along an offset comes from the rank at the opposite offset
    offsets = [offset for offset in product((-1, 0, 1), repeat=dimensions) if any(offset)]
    to = {offset: neighbors(grid, offset) for offset in offsets}
    sends = [offset for offset in offsets if to[offset] is not None]
    recvs = [offset for offset in offsets if to[tuple(-step for step in offset)] is not None]
    sources = [to[tuple(-step for step in offset)] for offset in recvs]
    comm = world.Create_dist_graph_adjacent(sources, [to[offset] for offset in sends])
    given = [part(block.shape, offset, {-1: 1, 0: 1, 1: POINTS}) for offset in sends]
    got = [part(block.shape, offset, {-1: POINTS + 1, 0: 1, 1: 0}) for offset in recvs]
    specs = [[block, [1] * len(types), [0] * len(types), types] for types in (given, got)]
    exchange = comm.Neighbor_alltoallw_init(*specs)
    for _ in range(STEPS):
        exchange.Start()
        exchange.Wait()
        block[inside] = smooth(block)
    exchange.Free()

    for _ in range(STEPS):
        whole = smooth(np.pad(whole, 1, "wrap") if periodic else np.pad(whole, 1))
    for each in (*given, *got, comm, grid):
        each.Free()
    return world.allreduce(float(abs(block[inside] - whole[mine]).max()), MPI.MAX)


for dimensions, periodic in product((2, 3), (True, False)):
    difference = on_all_ranks(dimensions, periodic)
    assert difference < 1e-14
    if world.rank == 0:
        kind = "periodic" if periodic else "with borders"
        print(f"{dimensions} dimensions, {kind}: {STEPS} steps on {world.size} ranks, largest difference {difference}")

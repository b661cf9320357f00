"""Checks that all ranks have the same model before they train together, and that none of them has failed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
from mpi4py import MPI

import pycoll

from .flat import Arrays

SAME = np.iinfo(np.int64).max
TAG = 32_000  # of the messages of `largest`


def check_same_arrays(what: str, arrays: Arrays, comm: MPI.Comm) -> None:
    """Raise ValueError on all ranks if names, shapes or dtypes differ between ranks; it names the first difference."""
    check_same(what, (f"{name!r}: {array.dtype} {tuple(array.shape)}" for name, array in arrays.items()), comm)


def check_same_options(comm: MPI.Comm, **options: object) -> None:
    """Raise ValueError on all ranks if options differ between ranks; it names the first that differs."""
    check_same("option", (f"{name}={value!r}" for name, value in options.items()), comm)


def check_same(what: str, lines: Iterable[str], comm: MPI.Comm) -> None:
    """Raise ValueError on all ranks if lines differ between ranks; it names the first line that differs."""
    mine = list(lines)
    common = pycoll.bcast_object(mine, comm=comm)
    where = next((i for i, (a, b) in enumerate(zip(mine, common)) if a != b), min(len(mine), len(common)))
    different = where < max(len(mine), len(common))
    first = pycoll.allgather(np.array([where if different else SAME]), comm=comm).reshape(-1)
    rank = int(first.argmin())
    if first[rank] == SAME:
        return
    theirs = pycoll.bcast_object(_line(mine, first[rank]), root=rank, comm=comm)
    raise ValueError(
        f"{what} {first[rank]} differs between ranks: rank 0 has {_line(common, first[rank])}, rank {rank} has {theirs}"
    )


def largest(number: int, comm: MPI.Comm) -> int:
    """Return the largest of the numbers of all ranks; the ranks may have started different collectives before."""
    mine, other = np.array([number]), np.empty(1, np.int64)
    distance = 1
    while distance < comm.size:
        to, source = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
        pycoll.sendrecv(mine, to, TAG, other, source, TAG, comm=comm)
        np.maximum(mine, other, out=mine)
        distance *= 2
    return int(mine[0])


@contextlib.contextmanager
def together(comm: MPI.Comm, who: str, what: str) -> Iterator[None]:
    """Run the block on all ranks; if it fails on one rank, raise an error on all of them."""
    error = None
    try:
        yield
    except Exception as caught:
        error = caught
    failed = pycoll.allgather(np.array([error is not None]), comm=comm)
    if error is not None:
        raise error
    if failed.any():
        raise RuntimeError(f"{who}: rank {int(failed.argmax())} could not {what}")


def _line(lines: list[str], number: int) -> str:
    return lines[number] if number < len(lines) else "nothing"

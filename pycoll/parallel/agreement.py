"""The ranks compare what they have before they train together."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import pycoll

from .flat import Arrays


def check_same(what: str, arrays: Arrays, comm: MPI.Intracomm) -> None:
    """ValueError on all ranks, naming the first difference, unless names, shapes and dtypes are those of rank 0."""
    mine = [f"{name!r}: {array.dtype} {tuple(array.shape)}" for name, array in arrays.items()]
    common = _from(0, "\n".join(mine), comm).split("\n") if _from_any(bool(mine), comm) else []
    where = next((i for i, (a, b) in enumerate(zip(mine, common)) if a != b), min(len(mine), len(common)))
    same = where == len(mine) == len(common)
    first = pycoll.allgather(np.array([np.iinfo(np.int64).max if same else where]), comm=comm).reshape(-1)
    if same and first.min() == first[0]:
        return
    rank = int(first.argmin())
    line = mine[first[rank]] if first[rank] < len(mine) else "nothing"
    theirs = _from(rank, line, comm)
    ours = common[first[rank]] if first[rank] < len(common) else "nothing"
    raise ValueError(f"{what} {first[rank]} differs between ranks: rank 0 has {ours}, rank {rank} has {theirs}")


def _from_any(mine: bool, comm: MPI.Intracomm) -> bool:
    return bool(pycoll.allreduce(np.array([mine]), op="lor", comm=comm)[0])


def _from(root: int, text: str, comm: MPI.Intracomm) -> str:
    """The root's text, on all ranks."""
    data = np.frombuffer(text.encode(), np.uint8).copy()
    length = pycoll.bcast(np.array([data.size]), root, comm=comm)
    data = data if comm.rank == root else np.empty(length[0], np.uint8)
    return pycoll.bcast(data, root, comm=comm).tobytes().decode()

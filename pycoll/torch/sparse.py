"""All-reduce of sparse tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch.distributed import ReduceOp

import pycoll

from .arrays import as_array


def allreduce(tensor: torch.Tensor, op: Any, comm: MPI.Intracomm, seconds: float) -> None:
    """Sum a sparse tensor over the ranks, in place: gather indices and values of all ranks, and coalesce them.

    It is complete when it returns, because its second step depends on the result of the first.  A step that takes
    longer than `seconds` raises CollectiveTimeout.
    """
    if op.op != ReduceOp.SUM:
        raise ValueError(f"all_reduce of a sparse tensor: {op.op} is not supported, only SUM")
    mine = tensor.coalesce()
    found = _result(pycoll.iallgather(np.array([mine._nnz()]), comm=comm), seconds)
    counts = [int(count) for count in found.reshape(-1)]
    indices = _gathered(mine.indices().t().contiguous(), counts, comm, seconds).t()
    values = _gathered(mine.values(), counts, comm, seconds)
    with torch.no_grad():
        tensor.copy_(torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=False).coalesce())


def _result(request: Any, seconds: float) -> Any:
    request.set_timeout(seconds)
    return request.wait()


def _gathered(rows: torch.Tensor, counts: list[int], comm: MPI.Intracomm, seconds: float) -> torch.Tensor:
    """Gather rows of all ranks, of which rank r has `counts[r]`."""
    result = rows.new_empty((sum(counts), *rows.shape[1:]))
    width = int(np.prod(rows.shape[1:], dtype=int))
    recvbuf, sendbuf = as_array(result), as_array(rows.contiguous())
    factor = width * rows.itemsize // recvbuf.itemsize
    _result(pycoll.iallgatherv(sendbuf, [recvbuf, [count * factor for count in counts]], comm=comm), seconds)
    return result

"""Hooks, which average a full bucket of gradients.

A hook is a generator function of a `Bucket`.  It starts nonblocking collectives and yields their requests, one request
or a list.  It is resumed once they are complete.  At its end `bucket.vector` must hold the average over all ranks of
`bucket.comm`.  The code before the first yield runs during the backward pass.  The rest runs in `synchronize`, bucket
by bucket, so that all ranks start their collectives in the same order.  If the step is dropped (`zero_grad`), the hook
ends at its first yield; therefore it must not change `bucket.state` before.

    def in_half(bucket):
        wire = (bucket.vector / bucket.comm.size).astype(np.float16)
        yield pycoll.iallreduce(MPI.IN_PLACE, wire, comm=bucket.comm)
        bucket.vector[:] = wire
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll

from ..arguments.ops import EXACT
from ..base.numbers import check_real
from .buckets import Bucket
from .flat import Arrays, check_cast, named_dtype

Hook = Callable[[Bucket], Iterator[Any]]


def average(bucket: Bucket) -> Iterator[Any]:
    """Average without compression."""
    yield bucket.allreduce(bucket.vector, pycoll.AVG)


def exact_average(bucket: Bucket) -> Iterator[Any]:
    """Average with ``op="exact_sum"``: gradients of ranks are added exactly, so that their order does not matter.

    `DistributedDataParallel` raises TypeError if parameters are not of single or double precision.
    """
    yield bucket.allreduce(bucket.vector, pycoll.EXACT_SUM)
    bucket.vector /= bucket.comm.size


def check_hook(hook: Hook, parameters: Arrays) -> None:
    """Raise TypeError if the hook does not support the dtype of a parameter."""
    for name, array in parameters.items():
        what = f"parameters[{name!r}]"
        if check := getattr(hook, "check", None):
            check(what, array.dtype)
        if hook is exact_average and array.dtype.char not in EXACT:
            raise TypeError(
                f"{what} has dtype {array.dtype}, but exact_average supports only single and double precision"
            )


class Cast:
    """A hook that sends and sums gradients in another dtype; float16 and bfloat16 have half the bytes of float32.

    Parameters
    ----------
    dtype : dtype or "bfloat16"
        The dtype on the wire.  The name "bfloat16" needs the package ml_dtypes.

    Raises
    ------
    TypeError
        If `dtype` is an integer dtype, or "bfloat16" is used without ml_dtypes.  `DistributedDataParallel` raises it if
        gradients are complex but `dtype` is not.

    Notes
    -----
    The gradients are divided by the number of ranks before the sum, to avoid overflow in float16.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = named_dtype(dtype)
        if self.dtype.kind in "iub":
            raise TypeError(f"dtype={self.dtype} has no averages")

    def check(self, what: str, dtype: np.dtype) -> None:
        """Raise TypeError if the cast from this dtype would drop imaginary parts."""
        check_cast(what, dtype, self.dtype)

    def __call__(self, bucket: Bucket) -> Iterator[Any]:
        """Average a bucket."""
        self.check(f"bucket {bucket.index}", bucket.vector.dtype)  # a function around the hook hides it from the driver
        wire = bucket.wire(self.dtype)
        np.divide(bucket.vector, bucket.comm.size, out=wire, casting="unsafe")
        yield bucket.allreduce(wire, MPI.SUM)
        np.copyto(bucket.vector, wire, casting="unsafe")


class TopK:
    """A hook that sends only the gradients with the largest magnitudes; the rest is added in the next step.

    Parameters
    ----------
    ratio : float
        The fraction of the gradients of a bucket that each rank sends, with 0 < ratio <= 1; at least one gradient.

    Raises
    ------
    ValueError
        If the ratio is out of range.

    Notes
    -----
    The gradients that have not been sent yet are in ``bucket.state["error"]``.  Within
    `DistributedDataParallel.join`, a rank that has no more batches continues to send them.

    References
    ----------
    Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", 2018. https://arxiv.org/abs/1809.07599
    """

    def __init__(self, ratio: float = 0.01) -> None:
        check_real("ratio", ratio)
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio={ratio} is not in 0 < ratio <= 1")
        self.ratio = ratio

    def __call__(self, bucket: Bucket) -> Iterator[Any]:
        """Average a bucket."""
        if "error" not in bucket.state:
            bucket.state["error"] = np.zeros_like(bucket.vector)
        error, total = bucket.state["error"], bucket.vector
        total += error
        count = max(1, int(self.ratio * len(total)))
        chosen = np.argpartition(np.abs(total), len(total) - count)[-count:].astype(np.int32)
        values = total[chosen]
        requests = [pycoll.iallgather(part, comm=bucket.comm) for part in (chosen, values)]
        yield requests
        indices, parts = (request.wait() for request in requests)
        np.copyto(error, total)
        error[chosen] = 0
        bucket.vector[...] = 0
        for rank in range(bucket.comm.size):  # the same order on all ranks, so that the results are bitwise equal
            bucket.vector[indices[rank]] += parts[rank]
        bucket.vector /= bucket.comm.size

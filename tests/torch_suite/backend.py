"""The tests of torch, told that the backend "pycoll" is gloo."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal import common_utils
from torch.testing._internal.common_distributed import TEST_SKIPS
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import (
    CUSTOM_PG_TIMEOUT,
    Barrier,
    DistributedTest,
    TestDistBackend,
)

import pycoll.torch  # noqa: F401  registers the backend

__all__ = ["SKIPS", "Barrier", "Suite", "finalize", "initialize"]

SKIPS = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}

# torch lets only C++ create the profiler's events of a collective, so they are not among what the tests expect.
distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()

_create = distributed_c10d._new_process_group_helper


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    """The tests, without the processes that they start."""


def _create_as_gloo(size: int, rank: int, ranks: Any, backend: Any, *rest: Any, **options: Any) -> Any:
    """Create a process group of pycoll where gloo is wanted, under the name "gloo"."""
    if str(backend) != "gloo":
        return _create(size, rank, ranks, backend, *rest, **options)
    group, store = _create(size, rank, ranks, dist.Backend("pycoll"), *rest, **options)
    if store is not None:
        distributed_c10d._world.pg_map[group] = dist.Backend("gloo"), store
    return group, store


distributed_c10d._new_process_group_helper = _create_as_gloo


def initialize(case: Any, name: str, timeout: timedelta) -> None:
    """Create the process group of a test, as the tests of torch do."""
    common_utils.set_rng_seed()
    seconds = CUSTOM_PG_TIMEOUT.get(name)
    dist.init_process_group(
        "gloo",
        init_method=case.init_method,
        world_size=int(case.world_size),
        rank=case.rank,
        timeout=timedelta(seconds=seconds) if seconds else timeout,
    )
    case._barrier()


def finalize() -> None:
    """Undo what a test has left."""
    torch.set_default_dtype(torch.float32)
    if dist.is_initialized():
        dist.destroy_process_group()

"""The tests of torch, for which the backend "pycoll" is that of the environment variable BACKEND."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal import common_utils
from torch.testing._internal.common_distributed import TEST_SKIPS

from tests.torch_suite import on_cpu

# isort: split
# after on_cpu, which changes what they import
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import (
    BACKEND,
    CUSTOM_PG_TIMEOUT,
    Barrier,
    DistributedTest,
    TestDistBackend,
)

import pycoll.torch  # noqa: F401  registers the backend

__all__ = ["SKIPS", "Barrier", "Suite", "finalize", "initialize"]

SKIPS = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}

on_cpu.apply(distributed_test)
# torch lets only C++ create the profiler's events of a collective, so they are not among what the tests expect.
distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()

_create = distributed_c10d._new_process_group_helper


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    """The tests, without the processes that they start."""


def _create_in_disguise(size: int, rank: int, ranks: Any, backend: Any, *rest: Any, **options: Any) -> Any:
    """Create a process group of pycoll where `BACKEND` is wanted."""
    if str(backend) != BACKEND:
        return _create(size, rank, ranks, backend, *rest, **options)
    group, store = _create(size, rank, ranks, dist.Backend("pycoll"), *rest, **options)
    _disguise(group)
    return group, store


def _disguise(group: Any) -> None:
    """Let a process group of pycoll pass for one of `BACKEND`."""
    if group in distributed_c10d._world.pg_map:  # this rank is a member
        _, store = distributed_c10d._world.pg_map[group]
        distributed_c10d._world.pg_map[group] = dist.Backend(BACKEND), store


distributed_c10d._new_process_group_helper = _create_in_disguise


def initialize(case: Any, name: str, timeout: timedelta) -> None:
    """Create the process group of a test, as the tests of torch do."""
    common_utils.set_rng_seed()
    seconds = CUSTOM_PG_TIMEOUT.get(name)
    dist.init_process_group(
        "pycoll",
        init_method=case.init_method,
        world_size=int(case.world_size),
        rank=case.rank,
        timeout=timedelta(seconds=seconds) if seconds else timeout,
    )
    _disguise(dist.group.WORLD)
    case._barrier()


def finalize() -> None:
    """Undo what a test has left."""
    torch.set_default_dtype(torch.float32)
    dist.set_debug_level(dist.DebugLevel.OFF)
    if dist.is_initialized():
        dist.destroy_process_group()

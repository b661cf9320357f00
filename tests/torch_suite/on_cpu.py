"""Tests of torch that ask for GPUs, run on the CPU: what they move to a GPU stays where it is.

Import this module before the tests of torch.  Most of them test DistributedDataParallel.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.testing._internal import common_distributed

# Tests that are skipped as before, because they need a GPU.
STREAMS = "uses the streams of a GPU"
SYNCHRONIZED = "SyncBatchNorm accepts modules on a GPU only"
NEED_GPU = {
    "test_average_parameters": "creates a group of NCCL",
    "test_ddp_apply_optim_in_backward": STREAMS,
    "test_ddp_apply_optim_in_backward_grad_as_bucket_view_false": STREAMS,
    "test_ddp_apply_optim_in_backward_ignored_params": STREAMS,
    "test_ddp_compile_static_graph": "compiles for a GPU",
    "test_ddp_device": "compares the numbers of devices",
    "test_ddp_inference": SYNCHRONIZED,
    "test_ddp_native_mixed_precision_grad_as_bucket_view_no_set_grad_none": STREAMS,
    "test_ddp_native_mixed_precision_grad_as_bucket_view_set_grad_to_none": STREAMS,
    "test_ddp_native_mixed_precision_ignored_params": STREAMS,
    "test_ddp_native_mixed_precision_no_grad_as_bucket_view_no_set_grad_none": STREAMS,
    "test_ddp_native_mixed_precision_no_grad_as_bucket_view_set_grad_to_none": STREAMS,
    "test_ddp_uneven_inputs": "takes minutes on a CPU",
    "test_ddp_uneven_inputs_stop_iteration_sync_bn": SYNCHRONIZED,
    "test_ddp_profiling_torch_profiler": "counts the events of the profiler, which only C++ can create",
    "test_monitored_barrier_allreduce_hang": "creates a group of NCCL",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": "creates a group of NCCL",
    "test_sync_bn_logged": SYNCHRONIZED,
}

_skip_if_lt_x_gpu = common_distributed.skip_if_lt_x_gpu
_initialize = DistributedDataParallel.__init__


def _run_anyway(count: int, **options: Any) -> Callable[[Any], Any]:
    return lambda test: _skip_if_lt_x_gpu(count, **options)(test) if test.__name__ in NEED_GPU else test


def _is_gpu(given: Any) -> bool:
    return type(given) is int or (isinstance(given, str | torch.device) and str(given).startswith("cuda"))


class _OnCpu(TorchFunctionMode):
    """Creates tensors on the CPU, and leaves them there, whatever device is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = {key: "cpu" if key == "device" and _is_gpu(each) else each for key, each in (kwargs or {}).items()}
        if func in (torch.Tensor.to, torch._C._nn._parse_to):
            args = tuple("cpu" if _is_gpu(each) else each for each in args)
        return func(*args, **kwargs)


def _without_devices(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **options: Any) -> None:
    _initialize(self, module, **options)


class _Torch(types.ModuleType):
    """The module `torch`, whose devices are all the CPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def device(*_: Any) -> torch.device:
        return torch.device("cpu")


common_distributed.skip_if_lt_x_gpu = _run_anyway
common_distributed.init_multigpu_helper = lambda world_size, backend: {rank: [rank] for rank in range(world_size)}
DistributedDataParallel.__init__ = _without_devices
torch.nn.Module.cuda = lambda self, device=None: self
torch.cuda.set_device = torch.cuda.synchronize = lambda device=None: None
torch.cuda.current_device = lambda: int(os.environ["RANK"])
_OnCpu().__enter__()


def apply(tests: types.ModuleType) -> None:
    """Let a module of tests, imported after this one, name no GPU."""
    tests.torch = _Torch("torch")

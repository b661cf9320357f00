"""What DistributedDataParallel needs beside a process group, with communication hooks and with uneven inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch.distributed import BuiltinCommHookType
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from .process_group import backend_of
from .work import ordered_callbacks

_register_hook, _notify = DistributedDataParallel.register_comm_hook, Join.notify_join_context
_register_builtin_hook = DistributedDataParallel._register_builtin_comm_hook
_works: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def register() -> None:
    """Adapt DistributedDataParallel and `Join`."""
    DistributedDataParallel.register_comm_hook = _register_ordered
    DistributedDataParallel._register_builtin_comm_hook = _register_builtin
    Join.notify_join_context = staticmethod(_notify_and_keep)


def _register_ordered(model: Any, state: Any, hook: Callable[..., Any]) -> None:
    """Register a hook whose callbacks may start collectives, for example the PowerSGD hook.

    All ranks must start the collectives of a group in the same order.  Callbacks of several buckets would start theirs
    when messages happen to arrive.  So the hook waits for each of its collectives, and its callbacks run inside the
    hook.  The default hooks of torch, whose callbacks start nothing, go on overlapping with the backward pass.
    """
    of_torch = getattr(hook, "__module__", None) == default_hooks.__name__
    if backend_of(model.process_group) and callable(hook) and not of_torch:
        unordered = hook

        @functools.wraps(unordered)
        def hook(state: Any, bucket: Any) -> Any:
            with ordered_callbacks():
                return unordered(state, bucket)

    _register_hook(model, state, hook)


def _register_builtin(model: Any, kind: BuiltinCommHookType) -> None:
    """Register a hook of C++, except for half precision: that of C++ cannot read the futures of Python."""
    if kind == BuiltinCommHookType.FP16_COMPRESS and backend_of(model.process_group):
        _register_hook(model, model.process_group, default_hooks.fp16_compress_hook)
    else:
        _register_builtin_hook(model, kind)


def _notify_and_keep(joinable: Any) -> Any:
    """Keep the work of `Join` until the next one.

    DistributedDataParallel passes it to C++, which waits for it in the backward pass.  C++ does not keep the Python
    object of a work, and without it finds neither `wait` nor `get_future`.
    """
    _works[joinable] = work = _notify(joinable)
    return work

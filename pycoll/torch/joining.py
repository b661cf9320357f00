"""Works of `Join`, kept until the next one.

DistributedDataParallel passes the work of `Join.notify_join_context` to C++, which waits for it in the backward pass.
C++ does not keep the Python object of a work, and without it finds neither `wait` nor `get_future`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch.distributed.algorithms.join import Join

_notify = Join.notify_join_context
_works: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _notify_and_keep(joinable: Any) -> Any:
    _works[joinable] = work = _notify(joinable)
    return work


def register() -> None:
    """Let `Join` keep its works."""
    Join.notify_join_context = staticmethod(_notify_and_keep)

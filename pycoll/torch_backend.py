"""The backend of torch.distributed for programs that do not import `pycoll.torch`.

Torch calls `register` when it is imported, unless ``TORCH_DEVICE_BACKEND_AUTOLOAD`` is 0.  The first process group
imports `pycoll.torch`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from .base.launcher import launched_ranks


def register() -> None:
    """Register the backend, and let ``env://`` ask MPI where torch would say that a variable is not set."""
    import torch.distributed

    if not torch.distributed.is_available() or "pycoll.torch" in sys.modules:
        return
    from torch.distributed.rendezvous import _rendezvous_handlers

    torch.distributed.Backend.register_backend("pycoll", _create, extended_api=True, devices=["cpu", "cuda"])
    of_torch = _rendezvous_handlers["env"]

    def env(url: str, **given: Any) -> Iterator[tuple[Any, int, int]]:
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing and launched_ranks(os.environ) and "pycoll.torch" not in sys.modules:
            import pycoll.torch  # noqa: F401  # which replaces the handler

            yield from _rendezvous_handlers["env"](url, **given)
        else:
            yield from of_torch(url, **given)

    _rendezvous_handlers["env"] = env


def _create(options: Any, backend_options: Any) -> Any:
    from .torch import create

    return create(options, backend_options)

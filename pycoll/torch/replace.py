"""Unchanged PyTorch programs: every process group is one of pycoll, whatever backend the program names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch.distributed
from torch.distributed import device_mesh, distributed_c10d

FUNCTIONS = ("init_process_group", "new_group")


def replace_backend() -> None:
    """Make torch.distributed create process groups with the backend "pycoll" only.

    This must be called before the program imports the functions by name.
    """
    for name in FUNCTIONS:
        function = _with_pycoll(getattr(distributed_c10d, name))
        for module in (distributed_c10d, torch.distributed, device_mesh):
            if hasattr(module, name):
                setattr(module, name, function)


def _with_pycoll(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments["backend"] = "pycoll"
        given.arguments.pop("pg_options", None)  # options of another backend
        return function(*given.args, **given.kwargs)

    return call

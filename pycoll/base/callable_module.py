"""Modules that can also be called, for what is both a function and a command: ``pycoll.trace``, ``pycoll.simulate``."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Let calling the module of that name call the function."""

    class CallableModule(types.ModuleType):
        __call__ = staticmethod(function)

    sys.modules[name].__class__ = CallableModule

"""Modules that can be called: ``pycoll.trace`` and ``pycoll.simulate`` are functions as well as commands."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Make the module of that name callable: a call calls the function."""

    class CallableModule(types.ModuleType):
        __call__ = staticmethod(function)

    sys.modules[name].__class__ = CallableModule

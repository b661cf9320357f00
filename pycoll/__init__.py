"""pycoll: collective communication with several algorithms, over point-to-point messages of mpi4py.

The public names are listed in ``__init__.pyi`` and loaded at first use, so that schedules can be proved, counted and
drawn without MPI.
"""

import os
from typing import Any

import lazy_loader  # type: ignore[import-untyped]

__version__ = "0.1.0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _load(name)
    except (ImportError, RuntimeError):
        from .base import mpi  # without an MPI library, this raises an error that says what to install

        raise


if os.environ.get("PYCOLL_TRACE"):
    from .base import hooks

    def _trace(private: Any) -> None:
        from .trace.session import begin_as_set

        begin_as_set(private)

    hooks.channel_made.append(_trace)

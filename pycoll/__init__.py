"""pycoll: collective communication with several algorithms, over point-to-point messages of mpi4py.

The public names are listed in ``__init__.pyi`` and loaded at first use, so that schedules can be proved, counted and
drawn without MPI.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

from .base.version import __version__ as __version__


@functools.cache
def _stub() -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Functions that load a name and list the names, and the names; parsing them takes time, so it is done once."""
    import lazy_loader  # type: ignore[import-untyped]

    return lazy_loader.attach_stub(__name__, __file__)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    load, _, names = _stub()
    if name == "__all__":
        return names
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return load(name)
    except (ImportError, RuntimeError):
        from .base import mpi  # without an MPI library, this raises an error that says what to install

        raise


def __dir__() -> list[str]:
    return _stub()[1]()


if os.environ.get("PYCOLL_TRACE"):
    from .base import hooks

    def _trace(private: Any) -> None:
        from .trace.session import begin_as_set

        begin_as_set(private)

    hooks.channel_made.append(_trace)

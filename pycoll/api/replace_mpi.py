"""What ``python -m pycoll.run`` changes in `mpi4py.MPI`, when the program imports it."""

from __future__ import annotations

import copyreg
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from ..runtime.attach import attach
from .abort import abort_on_exception
from .comm import CONSTANTS, Comm
from .mpi_requests import replace_methods


def replace() -> None:
    """Replace the communicators and the methods of requests, and end the job after an uncaught exception.

    If the program initializes MPI itself, `Init` and `Init_thread` then attach to the communicators.
    """
    abort_on_exception()
    replace_constants()
    replace_methods()
    if MPI.Is_initialized():
        _attach_all()
    else:
        for name in ("Init", "Init_thread"):
            setattr(MPI, name, _attaching(getattr(MPI, name)))


def replace_constants() -> None:
    """Replace MPI.COMM_WORLD and MPI.COMM_SELF by `pycoll.Comm` objects, which are pickled as before."""
    for name in CONSTANTS:
        comm = Comm.__new__(Comm)
        # the constructor would call MPI, which may not be initialized yet
        ctypes.memmove(MPI._addressof(comm), MPI._addressof(getattr(MPI, name)), MPI._sizeof(MPI.Comm))
        comm.__module__ = MPI.__name__  # where pickle looks for the name
        setattr(MPI, name, comm)
    copyreg.pickle(MPI.Intracomm, _reduce)


def _attaching(initialize: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(initialize)
    def call(*args: Any, **kwargs: Any) -> Any:
        level = initialize(*args, **kwargs)
        _attach_all()
        return level

    return call


def _attach_all() -> None:
    for name in CONSTANTS:
        attach(getattr(MPI, name))


def _reduce(comm: MPI.Intracomm) -> str | tuple[Any, ...]:
    """Pickle a plain `MPI.Intracomm` for COMM_WORLD or COMM_SELF as a copy of the new constant."""
    for constant in (getattr(MPI, name) for name in CONSTANTS):
        if comm == constant:
            return copyreg.__newobj__, (MPI.Intracomm, constant)  # type: ignore[attr-defined]
    return comm.__reduce__()

"""Errors of pycoll's own; the first two are MPI's errors too, for programs that expect those."""

from __future__ import annotations

from mpi4py import MPI


class _Told(MPI.Exception):
    """An MPI error that says what is wrong."""

    code = MPI.ERR_OTHER

    def __init__(self, text: str) -> None:
        super().__init__(self.code)
        self.text = text

    def __str__(self) -> str:
        return self.text


class WrongRoot(_Told, ValueError):
    """A root that is no rank of the communicator."""

    code = MPI.ERR_ROOT


class WrongOperation(_Told, TypeError):
    """An operation that is not defined on the elements."""

    code = MPI.ERR_OP


class CommunicatorLimit(_Told):
    """MPI cannot make another communicator."""


class MismatchError(ValueError):
    """Ranks called a collective with arguments that do not fit together; raised on all of them."""


class CollectiveTimeout(RuntimeError):
    """A call waited for other ranks for more than PYCOLL_TIMEOUT seconds.

    After a collective, its communicator cannot be used any more.
    """


class CollectiveInterrupted(RuntimeError):
    """A collective ended early on this rank; its communicator cannot be used any more."""

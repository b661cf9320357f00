"""The exceptions of pycoll; some are also MPI.Exception, for programs that expect it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpi4py import MPI

if TYPE_CHECKING:
    from typing_extensions import Self


class _ExplainedError(MPI.Exception):
    """An MPI error with a message."""

    code = MPI.ERR_OTHER

    def __new__(cls, *_: object) -> Self:
        """Pass the code, because mpi4py 4.0 reads the arguments here."""
        return super().__new__(cls, cls.code)

    def __init__(self, text: str) -> None:
        super().__init__(self.code)
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class WrongRoot(_ExplainedError, ValueError):
    """The root is not a rank of the communicator; programs catch it as ValueError or as MPI.Exception (ERR_ROOT)."""

    code = MPI.ERR_ROOT


class WrongRank(_ExplainedError, ValueError):
    """A message has no such destination or source; programs catch it as ValueError or as MPI.Exception (ERR_RANK)."""

    code = MPI.ERR_RANK


class WrongTag(_ExplainedError, ValueError):
    """The tag of a message is out of range; programs catch it as ValueError or as MPI.Exception (ERR_TAG)."""

    code = MPI.ERR_TAG


class WrongCommunicator(_ExplainedError, TypeError):
    """There is no communicator; programs catch it as TypeError or as MPI.Exception (ERR_COMM)."""

    code = MPI.ERR_COMM


class WrongOperation(_ExplainedError, TypeError):
    """The operation is not defined for the dtype; programs catch it as TypeError or as MPI.Exception (ERR_OP)."""

    code = MPI.ERR_OP


class WrongDatatype(_ExplainedError, ValueError):
    """The datatype cannot be used; programs catch it as ValueError or as MPI.Exception (ERR_TYPE)."""

    code = MPI.ERR_TYPE


class CommunicatorLimit(_ExplainedError):
    """MPI cannot create another communicator."""


class TruncatedMessage(_ExplainedError):
    """A message was longer than its receiver expected."""

    code = MPI.ERR_TRUNCATE


class RankFailed(_ExplainedError):
    """Processes of other ranks have died; the communicator is unusable afterwards, and can be shrunk.

    It is raised by MPI libraries with user-level failure mitigation (ULFM), for example with
    ``mpiexec --with-ft ulfm`` of Open MPI.  Programs catch it as RankFailed or as MPI.Exception (ERR_PROC_FAILED).

    Attributes
    ----------
    ranks : tuple of int
        The ranks of the communicator that are known to have failed.
    """

    code = MPI.ERR_PROC_FAILED

    def __init__(self, text: str, ranks: Iterable[int] = ()) -> None:
        super().__init__(text)
        self.ranks = tuple(ranks)


class GPUError(RuntimeError):
    """Work on a GPU failed, or waiting for it failed."""


def with_hint(error: BaseException) -> BaseException:
    """Return the error, or for a truncated message an error with a hint at the usual cause."""
    if isinstance(error, MPI.Exception) and error.Get_error_class() == MPI.ERR_TRUNCATE:
        return TruncatedMessage(
            f"{error}; the arguments probably differ between ranks: PYCOLL_CHECK=1 compares them before each call"
        )
    return error


class MismatchError(ValueError):
    """The ranks called a collective with arguments that do not match.

    With ``PYCOLL_CHECK=1`` it is raised on all ranks before a message is sent.  In shared memory, ranks also raise it
    without the check when they meet a call that does not match, and the communicator cannot be used any more.
    """


class RemoteError(RuntimeError):
    """Another rank could not send its object; it has raised the error that this one names.

    The communicator can still be used.
    """


class CollectiveTimeout(RuntimeError):
    """A call waited for other ranks for more than ``PYCOLL_TIMEOUT`` seconds.

    If the call was a collective, its communicator is unusable afterwards.
    """


class CollectiveInterrupted(RuntimeError):
    """A collective ended early on this rank; its communicator is unusable afterwards."""

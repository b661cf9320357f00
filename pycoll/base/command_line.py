"""Functions that the command lines of pycoll share."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

    from mpi4py import MPI

PAUSE = 0.5  # seconds: launchers forward output with a delay, and at an abort drop what they have not read


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n")

    @contextlib.contextmanager
    def refusing(self, *kinds: type[Exception]) -> Iterator[None]:
        """Exit with the message of an error of these kinds."""
        try:
            yield
        except BrokenPipeError:
            raise
        except kinds as error:
            self.error(in_words(error))

    def format_help(self) -> str:
        """Return the help; descriptions are docstrings, which mark code with double backticks."""
        return super().format_help().replace("``", "`")


def in_words(error: Exception) -> str:
    """Return the message of an error; for a file that cannot be read, its name and the reason."""
    if not isinstance(error, OSError) or error.filename is None or not error.strerror:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"{error.filename}: no such file"
    name = error.filename2 or error.filename  # the file that another one was to replace
    return f"{name}: {error.strerror[0].lower()}{error.strerror[1:]}"


def check_folder(option: str, path: Path | None, *endings: str) -> None:
    """Raise ValueError if the file that an option names has another ending, is a directory, or is in none."""
    if path and endings and path.suffix not in endings:
        known = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        raise ValueError(f"{option} {path} does not end in {known}")
    if path and not path.parent.is_dir():
        raise ValueError(f"{option} {path}: no such directory")
    if path and path.is_dir():
        raise ValueError(f"{option} {path} is a directory")


def say_written(*paths: Path | str | None) -> None:
    """Print the names of the files that a command has written, except None."""
    if names := [str(path) for path in paths if path]:
        print(f"written to {', '.join(names)}")


def refuse(comm: MPI.Intracomm, command: str, problem: object) -> None:
    """End a command on all ranks, which call this together; print why on rank 0."""
    with printed_once(comm):
        print(f"{command}: {problem}", file=sys.stderr)
        sys.exit(1)


def optional(module: str) -> Any:
    """Import an optional module; if it is not installed, exit with a message."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"this needs {error.name}: pip install {error.name}")


def exit_once(message: str) -> NoReturn:
    """Print a message and exit, without MPI; if a launcher has started several ranks, only rank 0 prints."""
    ranks = [os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK") if name in os.environ]
    if ranks[:1] in ([], ["0"]):
        sys.exit(message)
    time.sleep(PAUSE)  # a launcher may end the job as soon as a rank has failed
    sys.exit(1)


@contextlib.contextmanager
def until_the_reader_ends() -> Iterator[None]:
    """Exit without a traceback if the reader of the output has ended, for example `head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes the rest at its end
        sys.exit(1)


@contextlib.contextmanager
def printed_once(comm: MPI.Intracomm) -> Iterator[None]:
    """Print command-line errors and help on rank 0 only; if one rank exits, all do.

    Rank 0 prints the output of the lowest rank that exits.  It prints before any rank exits, because launchers may
    kill the other ranks as soon as one has ended.
    """
    out, err, code = io.StringIO(), io.StringIO(), None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    except SystemExit as end:
        code = end.code or 0
    outcomes = comm.allgather((code, out.getvalue(), err.getvalue()))
    code, output, errors = next((one for one in outcomes if one[0] is not None), outcomes[0])
    if comm.rank == 0:
        print(output, end="", flush=True)
        print(errors, end="", file=sys.stderr, flush=True)
    if code is not None:
        comm.Barrier()
        if comm.rank != 0:
            time.sleep(PAUSE)
        sys.exit(code)

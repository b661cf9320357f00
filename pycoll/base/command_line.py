"""What the command lines of pycoll share."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from mpi4py import MPI

PAUSE = 0.5  # seconds: launchers pass output on in their own time, and drop what they have not read at an abort


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """End the program."""
        self.exit(2, f"{self.prog}: {message}\n")


def check_folder(option: str, path: Path | None) -> None:
    """ValueError if the file that an option names is to be in a folder that is not there."""
    if path and not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no such folder")


def optional(module: str) -> Any:
    """A module that pycoll does not always need; without it the program ends and says so."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"this needs {error.name}: pip install {error.name}")


@contextlib.contextmanager
def printed_once(comm: MPI.Intracomm) -> Iterator[None]:
    """Print command-line errors and help on rank 0 only; if one rank exits, all do.

    The output is that of the first rank that exits.  Rank 0 prints before any rank exits, because launchers may kill
    the other ranks as soon as one has ended.
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

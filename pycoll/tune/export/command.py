"""``python -m pycoll.tune --export``: measure the algorithms of the MPI library, and write rules that select them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from mpi4py import MPI
from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from pycoll.base.command_line import in_words, printed_once, refuse, say_written
from pycoll.runtime import native
from pycoll.runtime.attach import attach

from ..environment import environment
from ..options import points, size_label
from .document import SETTINGS, existing, with_measurement, write
from .measure import measured
from .mpich import Mpich
from .ompi import OpenMpi
from .rules import DEFAULT, Library

LIBRARIES: dict[str, tuple[str, type[Mpich] | type[OpenMpi]]] = {
    "mpich": ("MPICH", Mpich),
    "ompi": ("Open MPI", OpenMpi),
}
PROG = "python -m pycoll.tune"
SELECTING = re.compile("OMPI_MCA_coll(_|$)|MPIR_CVAR_.*(_INTRA_ALGORITHM|_COMPOSITION|_SELECTION_TUNING_JSON_FILE)")


def export(comm: MPI.Intracomm, options: argparse.Namespace) -> None:
    """Measure, and write the files; errors exit the program before anything is measured."""
    if found := comm.bcast(problem(options.export, options.output) if comm.rank == 0 else None):
        refuse(comm, PROG, found)
    with printed_once(comm):  # if the library is not usable on one rank, all exit
        try:
            library: Library = LIBRARIES[options.export][1](comm)
        except (ValueError, KeyError, OSError, MPI.Exception) as error:
            print(f"{PROG}: --export {options.export}: {error}", file=sys.stderr)
            sys.exit(1)
    found = measured(comm, library, points(options.primitives, options.sizes), options.budget)
    where = {"ranks": comm.size, "hosts": attach(comm).facts.host_count, "environment": environment(comm)}
    with printed_once(comm):
        if comm.rank == 0:
            print(*filter(None, [all_points(found), summary(found)]), sep="\n")
            try:
                document = with_measurement(existing(options.output), where | {"primitives": found})
                say_written(*write(library, options.output, document))
            except OSError as error:
                print(f"{PROG}: -o {options.output}: {in_words(error)}", file=sys.stderr)
                sys.exit(1)
            if (options.output / SETTINGS).exists():
                print(f"to use the rules: . {shlex.quote(str((options.output / SETTINGS).absolute()))}")
            else:
                print("no rules: no algorithm is clearly faster than those that the library selects")


def problem(which: str, folder: Path) -> str | None:
    """Return why nothing can be exported to the directory; None if nothing is wrong."""
    if not native.library().startswith(LIBRARIES[which][0]):
        return f"--export {which}: the MPI library is {native.library()}"
    if disturbing := [one for one in os.environ if SELECTING.match(one)]:
        return f"--export {which}: unset {', '.join(disturbing)}, which select algorithms"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = existing(folder)
    except (OSError, ValueError) as error:
        return f"-o {folder}: {in_words(error)}; name another directory"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"-o {folder}: the directory is not writeable"
    if before["mpi"] != native.library():
        return f"-o {folder}: its rules are for {before['mpi']}, not for {native.library()}; name another directory"
    return None


def all_points(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return a table of all points: the time of the library's choice, and its ratio to the best time."""
    rows = [
        (primitive, size_label(point["nbytes"]), point["seconds"][DEFAULT] * 1e6, point["best"], point["gain"])
        for primitive, points in found.items()
        for point in points
    ]
    return str(tabulate(rows, ("primitive", "size", "default (us)", "best", "default / best"), floatfmt=".2f"))


def summary(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return a line for each new rule."""
    return "\n".join(
        f"{primitive}: {point['selected']} from {size_label(point['nbytes'])} to {size_label(point['most'])}, "
        f"{point['gain']:.2f} times as fast as the library's choice"
        for primitive, points in found.items()
        for point in points
        if point["selected"]
    )

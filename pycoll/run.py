"""Runs an unchanged mpi4py program with pycoll's collectives: ``python -m pycoll.run [-m] program [arguments]``.

MPI.COMM_WORLD and MPI.COMM_SELF are `pycoll.Comm`s in it, and an uncaught exception ends the whole job.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from mpi4py import MPI

from .api.abort import abort_on_exception
from .api.comm import Comm


def main(argv: list[str]) -> None:
    """Run the program that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m pycoll.run", description=__doc__)
    parser.add_argument("-m", action="store_true", dest="module", help="the program is a module's name")
    parser.add_argument("program", help="a file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    options = parser.parse_args(argv)
    abort_on_exception()
    MPI.COMM_WORLD, MPI.COMM_SELF = Comm(MPI.COMM_WORLD), Comm(MPI.COMM_SELF)  # type: ignore[misc]
    sys.argv = [options.program, *options.arguments]
    if options.module:
        sys.path[0] = ""
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.realpath(os.path.dirname(options.program))
        runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])

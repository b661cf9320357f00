"""Run an unchanged mpi4py program with the collectives of pycoll: ``python -m pycoll.run [-m] program [arguments]``.

In the program, MPI.COMM_WORLD and MPI.COMM_SELF are `pycoll.Comm` objects.  The class methods of MPI.Request and
MPI.Prequest accept requests of pycoll.  The program can set options in `mpi4py.rc`, and initialize MPI itself.  An
uncaught exception ends the whole job.  With --torch, process groups of
torch.distributed have the backend "pycoll", whatever backend the program names.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
import types
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

from .base import hooks
from .base.command_line import Parser, optional

MPI = "mpi4py.MPI"


def main(argv: list[str]) -> None:
    """Run the program that the command line names."""
    form = functools.partial(argparse.HelpFormatter, width=80)  # without a width, it imports many modules
    parser = Parser(prog="python -m pycoll.run", description=__doc__, formatter_class=form)
    parser.add_argument("-m", action="store_true", dest="module", help="run a module, like `python -m`")
    parser.add_argument("--torch", action="store_true", help="replace the backends of torch.distributed by pycoll")
    parser.add_argument("program", help="the file of the program, or with -m the name of a module")
    arguments = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    arguments.required = False  # in error messages
    options = parser.parse_args(argv)
    if not options.module and not os.path.exists(options.program):
        parser.error(f"{options.program}: no such file")
    replace_when_imported()
    if options.torch:
        optional("torch")
        importlib.import_module("pycoll.torch.replace").replace_backend()
    command = sys.modules["__main__"]
    sys.argv = [options.program, *options.arguments]
    sys.path[0] = "" if options.module else os.path.realpath(os.path.dirname(options.program))
    try:
        if options.module:
            runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        else:
            run_file(options.program)
    except (ImportError, RuntimeError) as error:
        wanted = isinstance(error, ImportError) or not any(isinstance(one, _Finder) for one in sys.meta_path)
        if wanted and MPI not in sys.modules:
            sys.modules["__main__"] = command
            importlib.import_module("pycoll.base.mpi")  # without an MPI library, this says what to install
        raise


def run_file(name: str) -> None:
    """Run a file as Python does: its module stays `__main__`, for threads and exit handlers that outlive the file."""
    path = os.path.abspath(name)
    if pkgutil.get_importer(path) or path.endswith(".pyc"):  # a directory or an archive with a __main__.py
        runpy.run_path(name, run_name="__main__")
        return
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)  # without the future statements of this file
    module = types.ModuleType("__main__")
    module.__file__, module.__loader__ = path, SourceFileLoader("__main__", path)
    sys.modules["__main__"] = module
    exec(code, vars(module))


def replace_when_imported() -> None:
    """Replace the communicators of mpi4py when mpi4py.MPI is imported, after the program has set its options."""
    if MPI in sys.modules:
        _replace()
    else:
        sys.meta_path.insert(0, _Finder())
        hooks.before_mpi.append(functools.partial(importlib.import_module, MPI))


class _Finder:
    """Finds mpi4py.MPI as without this object, and replaces its communicators after its first import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != MPI:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                _replace()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _replace() -> None:
    importlib.import_module("pycoll.api.replace_mpi").replace()


if __name__ == "__main__":
    main(sys.argv[1:])

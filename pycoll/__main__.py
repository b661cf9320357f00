"""List the commands of pycoll, or run one: ``pycoll draw`` and ``python -m pycoll draw`` are ``python -m pycoll.draw``.

``eval "$(pycoll --completion)"`` completes commands, options and names of primitives in bash.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .base.command_line import Parser, until_the_reader_ends

COMMANDS = {
    "pycoll.info": "print the versions, the MPI library, its transports, hosts and GPUs",
    "pycoll.prove": "prove algorithms, and count their rounds and bytes",
    "pycoll.challenges": "mend small schedules, judged by the proof",
    "pycoll.draw": "draw an algorithm step by step",
    "pycoll.export": "print the schedule of all ranks, in one of several formats",
    "pycoll.simulate": "simulate a collective or a training step on any number of ranks",
    "pycoll.synthesize": "search for a schedule for a given network",
    "pycoll.watch": "say where each rank of a running or hung job is",
    "pycoll.trace": "summarize or draw a recorded trace",
    "pycoll.tune": "measure the fastest algorithms for this machine",
    "pycoll.costs": "print the costs of all algorithms",
    "pycoll.run": "run an unchanged mpi4py program with pycoll",
    "pycoll.slurm": "write job scripts for Slurm",
    "pycoll.bench": "time the collectives of pycoll and of MPI",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print one line for each command, or run the command that is named."""
    width = max(map(len, COMMANDS))
    lines = [f"  python -m {name:{width}}  {purpose}" for name, purpose in COMMANDS.items()]
    text = "\n".join(["commands:", *lines, "", "Each command describes its options with --help."])
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="python -m pycoll", description=__doc__, epilog=text, formatter_class=form)
    parser.add_argument("--completion", action="store_true", help="print the completion for bash and zsh")
    parser.add_argument("--version", action="version", version=f"pycoll {__version__}")
    parser.add_argument("command", nargs="?", help="the name of a command, with or without pycoll")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(argv)
    by_name = {name.removeprefix("pycoll."): name for name in COMMANDS}
    if options.completion or options.command is None:
        with until_the_reader_ends():
            print(_completion(" ".join(by_name)) if options.completion else text)
        return
    name = by_name.get(options.command.removeprefix("pycoll."))
    if name is None:
        parser.error(f"{options.command!r} is not one of: {', '.join(by_name)}")
    sys.argv = ["-m", *options.arguments]  # as while `python -m` imports the package
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _completion(commands: str) -> str:
    """A script for bash: ``eval "$(pycoll --completion)"``."""
    from .schedule.registry import PRIMITIVES

    text = Path(__file__).with_name("completion.bash").read_text()
    return text.replace("COMMANDS", commands).replace("PRIMITIVES", " ".join(PRIMITIVES)).rstrip()


if __name__ == "__main__":
    main(sys.argv[1:])

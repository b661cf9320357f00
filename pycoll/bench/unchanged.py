"""Time an unchanged program of mpi4py alone and under ``python -m pycoll.run``.

For example, ``python -m pycoll.bench.unchanged demo/osu_bcast.py`` with a demo from the repository of mpi4py, or
``python -m pycoll.bench.unchanged --value 3 -m mpi4py.bench pingpong``.  The program prints its own times, one per
line, for example a size and a time.  It runs alternately in both ways; the table shows the medians, and the median of
the ratios of two runs in a row.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from statistics import median
from typing import Any

from pycoll.base.command_line import Parser

from .results import table

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
WAYS: dict[str, list[str]] = {"alone": [], "run": ["-m", "pycoll.run"]}
COLUMNS = {
    "case": ("first number", ""),
    "alone": ("mpi4py", ".6g"),
    "run": ("under pycoll.run", ".6g"),
    "ratio": ("ratio", ".2f"),
}


def values(output: str, value: int) -> dict[str, float]:
    """Return the `value`-th number of each line that has as many, by the first number of the line."""
    found = [NUMBER.findall(line) for line in output.splitlines() if not line.startswith("#")]
    return {numbers[0]: float(numbers[value - 1]) for numbers in found if len(numbers) >= value}


def measure(command: list[str], ranks: int, rounds: int, value: int) -> list[dict[str, Any]]:
    """Run the program alternately in both ways; return a record for each line that it prints in both."""
    spent: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in WAYS}
    for number in range(rounds):
        for way in sorted(WAYS, reverse=bool(number % 2)):
            job = ["mpiexec", "-n", str(ranks), sys.executable, *WAYS[way], *command]
            ended = subprocess.run(job, stdout=subprocess.PIPE, text=True, check=False)
            if ended.returncode:
                sys.exit(f"{' '.join(job)} failed with exit code {ended.returncode}:\n{ended.stdout}")
            for case, one in values(ended.stdout, value).items():
                spent[way][case].append(one)
    records = []
    for case, alone in spent["alone"].items():
        if pairs := [(run, other) for run, other in zip(spent["run"][case], alone) if other]:
            ratio = median(run / other for run, other in pairs)
            records.append({"case": case, "alone": median(alone), "run": median(spent["run"][case]), "ratio": ratio})
    return records


def main(argv: list[str]) -> int:
    """Measure the program, and print the times and ratios."""
    parser = Parser(prog="python -m pycoll.bench.unchanged", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="number of ranks (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs in each way (%(default)s)")
    parser.add_argument(
        "--value",
        type=int,
        default=2,
        metavar="N",
        help="position of the time among the numbers of a line (%(default)s)",
    )
    parser.add_argument("-m", action="store_true", dest="module", help="run a module, like `python -m`")
    parser.add_argument("program", help="the file of the program, or with -m the name of a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    options = parser.parse_args(argv)
    for name in ("ranks", "rounds", "value"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    command = [*["-m"] * options.module, options.program, *options.arguments]
    records = measure(command, options.ranks, options.rounds, options.value)
    if not records:
        sys.exit(f"no line of the output has {options.value} numbers; --value N names the position of the time")
    print(table(records, COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

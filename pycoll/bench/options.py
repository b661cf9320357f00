"""The command line of the benchmark; options have the same names as in nccl-tests where these exist."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import pycoll
from pycoll.arguments.ops import kind_of
from pycoll.base.command_line import Parser, check_folder, in_words
from pycoll.schedule.own_file import check, load
from pycoll.schedule.registry import find, has_algorithm
from pycoll.tune.benchmark_case import ARGUMENTS, MEASURED, OPERATIONS
from pycoll.tune.options import add_budget, add_primitives, nbytes, sizes

DESCRIPTION = "Time the collectives of pycoll and of MPI: mpiexec -n 4 python -m pycoll.bench [primitive ...]"
SPECIAL = ("all", "best", "auto", "native")


def parser() -> Parser:
    """Return the parser with all options."""
    one = Parser(prog="python -m pycoll.bench", description=DESCRIPTION)
    add_primitives(one, MEASURED)

    what = one.add_argument_group("what is measured")
    what.add_argument(
        "-b", "--minbytes", type=nbytes, default=8, metavar="SIZE", help="smallest size of the vector: 8, 64K, 1M (8)"
    )
    what.add_argument("-e", "--maxbytes", type=nbytes, default=64 << 20, metavar="SIZE", help="largest size (64M)")
    what.add_argument("-f", "--stepfactor", type=int, default=2, metavar="F", help="factor between sizes (%(default)s)")
    what.add_argument(
        "-i", "--stepbytes", type=nbytes, metavar="SIZE", help="difference between sizes, instead of a factor"
    )
    what.add_argument("-o", "--op", choices=OPERATIONS, default="sum", help="operation of reductions (%(default)s)")
    what.add_argument("-d", "--datatype", default="float32", help="name in NumPy or ml_dtypes (%(default)s)")
    what.add_argument("-r", "--root", type=int, default=0, help="rank of the root (%(default)s)")
    what.add_argument(
        "-a",
        "--algorithm",
        default="all",
        help="names, separated by commas; all; best: measure all, show the fastest; auto: the algorithm "
        "that pycoll chooses; native: the native MPI collective, called through pycoll (%(default)s)",
    )
    what.add_argument("--file", type=Path, help="measure the algorithms of this file too, named after its primitive")
    what.add_argument("--inplace", action="store_true", help="measure in place too")
    what.add_argument(
        "--arguments",
        choices=ARGUMENTS,
        default="fresh",
        help="how calls pass buffers; same: the same arrays; fresh: new views, at another address each time; "
        "typed: [array, type], with pycoll.Comm (%(default)s)",
    )
    what.add_argument(
        "--registered", action="store_true", help="registered buffers for pycoll, and the copy limit beside the times"
    )
    form = what.add_mutually_exclusive_group()
    form.add_argument("--nonblocking", action="store_true", help="nonblocking collectives, and how much can overlap")
    form.add_argument("--persistent", action="store_true", help="persistent collectives, created once")
    what.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="memory of the buffers (%(default)s)")

    how = one.add_argument_group("how")
    how.add_argument("-n", "--iters", type=int, help="iterations (default: until the median is stable)")
    how.add_argument("-w", "--warmup_iters", type=int, default=1, help="untimed warmup iterations (%(default)s)")
    how.add_argument("-c", "--check", type=int, choices=[0, 1], default=1, help="compare the results (%(default)s)")
    how.add_argument("--validate-only", action="store_true", help="compare the results without timing")
    add_budget(how, 12.0)
    how.add_argument("--quick", action="store_true", help="a first look: 3 seconds, five sizes from 16 B to 1 MiB")

    out = one.add_argument_group("output")
    out.add_argument("--json", metavar="FILE", help="also write the records to FILE as JSON")
    out.add_argument("--csv", metavar="FILE", help="also write the records to FILE as CSV")
    out.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="plot the speed relative to MPI, and the times, against size"
    )
    return one


def parse(argv: list[str], ranks: int) -> argparse.Namespace:
    """Parse the command line for this number of ranks; errors end the program."""
    one = parser()
    if "--quick" in argv:
        one.set_defaults(budget=3.0, minbytes=16, maxbytes=1 << 20, stepfactor=16)
    options = one.parse_args(argv)
    try:
        own = load(options.file) if options.file else []
        for name in own:
            algorithm = find(*name)
            check(algorithm, ranks, segments=2 if algorithm.pipelined else 1)
    except (OSError, ValueError) as error:
        one.error(in_words(error))
    options.primitives = options.primitives or sorted({primitive for primitive, _ in own} & set(MEASURED))
    if options.op == "avg" and {"scan", "exscan"} & set(options.primitives):
        one.error("--op avg is not defined for scan and exscan")
    options.primitives = options.primitives or [
        name for name in MEASURED if options.op != "avg" or name not in ("scan", "exscan")
    ]
    known = dict.fromkeys(name for primitive in options.primitives for name in pycoll.algorithms(primitive))
    if options.op == "exact_sum":
        if options.algorithm not in ("all", "auto"):
            one.error("--op exact_sum has no choice of algorithms")
        options.algorithm = "auto"
    options.algorithm = options.algorithm.split(",")
    for name in options.algorithm:
        if name not in SPECIAL and not any(has_algorithm(primitive, name) for primitive in options.primitives):
            one.error(f"--algorithm {name!r} is not one of: {', '.join([*known, *SPECIAL])}")
    try:
        options.sizes = sizes(options.minbytes, options.maxbytes, options.stepfactor, options.stepbytes)
        options.datatype = _datatype(options.datatype, options.op)
        check_folder("--plot", options.plot, ".png", ".svg", ".pdf")
    except ValueError as error:
        one.error(str(error))
    if not 0 <= options.root < ranks:
        one.error(f"--root {options.root} is not less than the number of ranks, {ranks}")
    for option, least in (("iters", 1), ("warmup_iters", 0)):
        if getattr(options, option) is not None and getattr(options, option) < least:
            one.error(f"--{option} {getattr(options, option)} is less than {least}")
    if options.plot and not find_spec("matplotlib"):
        one.error("--plot needs the package matplotlib")
    for option in ("json", "csv", "plot"):
        folder = Path(getattr(options, option) or ".").parent
        if not os.access(folder, os.W_OK):
            one.error(f"--{option} {getattr(options, option)}: the directory {folder} is not writable")
        with one.refusing(ValueError):
            check_folder(f"--{option}", getattr(options, option) and Path(getattr(options, option)))
    if options.arguments == "typed" and options.op in ("avg", "exact_sum"):
        one.error(f"--arguments typed does not support --op {options.op}, which MPI does not have")
    if options.registered and options.device == "cuda":
        one.error("--registered is not for --device cuda")
    options.form = "nonblocking" if options.nonblocking else "persistent" if options.persistent else "blocking"
    return options


def _datatype(name: str, op: str) -> np.dtype:
    """Return the dtype; raise ValueError if it does not exist or does not support the operation."""
    more = import_module("ml_dtypes") if find_spec("ml_dtypes") else None
    try:
        dtype = np.dtype(getattr(more, name, name))
    except TypeError:
        raise ValueError(f"--datatype {name!r} is not a dtype") from None
    if kind_of(dtype) not in ("fc" if op in ("avg", "exact_sum") else "iuf" if op in ("min", "max") else "iufc"):
        raise ValueError(f"--datatype {name} does not support --op {op}")
    return dtype


def names_of(primitive: str, asked: list[str]) -> list[str]:
    """Return the requested algorithms of a primitive; "all" and "best" request all of them."""
    own = pycoll.algorithms(primitive)
    wanted = [*asked, *(own if {"all", "best"} & set(asked) else ())]
    more = [name for name in asked if name not in [*own, *SPECIAL] and has_algorithm(primitive, name)]
    return [name for name in [*own, *more, "auto", "native"] if name in wanted]

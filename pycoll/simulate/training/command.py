"""Simulate a training step of a model on a mesh of ranks: ``python -m pycoll.simulate training``.

The table has the mean times of the stages of the pipeline.  Times of communication are those that are not overlapped
with computation.  The second table has each collective, and each message between stages, with its simulated time.
--trace writes the timeline of one rank of each stage.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from ...base.command_line import Parser, check_folder, in_words, say_written
from ...schedule.pipeline import SCHEDULES
from ..options import add_network, network_of
from . import tracks
from .groups import AXES, Groups
from .model import read
from .stage import BUCKET, How
from .step import Step, simulate_step


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    options = Parser(prog="python -m pycoll.simulate training", description=__doc__, allow_abbrev=False)
    options.add_argument("--model", type=Path, metavar="FILE", required=True, help="JSON file with the layers")
    options.add_argument(
        "--mesh",
        type=_mesh,
        required=True,
        metavar="AXIS=SIZE,...",
        help=f"axes ({', '.join(AXES)}) and sizes, the last one innermost: dp=512,pp=8,tp=4",
    )
    add_network(options)
    options.add_argument(
        "-a",
        "--algorithm",
        type=_pair,
        action="append",
        default=[],
        metavar="AXIS=NAME",
        help="algorithm of the collectives along an axis (default: the fastest for each size)",
    )
    options.add_argument("-m", "--micro-batches", type=int, default=1, help="micro-batches of a replica (%(default)s)")
    options.add_argument("--schedule", choices=SCHEDULES, default="1f1b", help="schedule of the pipeline (%(default)s)")
    options.add_argument("--chunks", type=int, default=1, help="chunks of layers on each stage (%(default)s)")
    options.add_argument(
        "--bucket-mb", type=float, default=BUCKET / (1 << 20), metavar="MIB", help="size of a bucket (%(default)s)"
    )
    options.add_argument("--no-overlap", action="store_true", help="average gradients after the backward pass")
    options.add_argument("--trace", type=Path, metavar="FILE", help="write a timeline: .json for Perfetto, or .svg")
    return options


def _pair(text: str) -> tuple[str, str]:
    axis, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not AXIS=VALUE")
    return axis, value


def _mesh(text: str) -> dict[str, int]:
    mesh: dict[str, int] = {}
    for axis, size in map(_pair, text.split(",")):
        if not size.isdecimal():
            raise argparse.ArgumentTypeError(f"{axis}={size!r} is not a number of ranks")
        if axis in mesh:
            raise argparse.ArgumentTypeError(f"the axis {axis!r} is given twice")
        mesh[axis] = int(size)
    return mesh


def main(argv: Sequence[str]) -> None:
    """Simulate and print."""
    grammar = parser()
    options = grammar.parse_args(argv)
    try:
        check_folder("--trace", options.trace, *tracks.FORMATS)
        where = options.ranks_per_host, options.topology, dict(options.algorithm)
        groups = Groups(options.mesh, network_of(options), *where)
        if not math.isfinite(options.bucket_mb):
            raise ValueError(f"--bucket-mb {options.bucket_mb} is not a finite number")
        bucket = int(options.bucket_mb * (1 << 20))
        how = How(options.micro_batches, options.schedule, options.chunks, bucket, not options.no_overlap)
        step = simulate_step(read(options.model), groups, how)
        if options.trace:
            tracks.write(step, groups, options.trace)
    except (ValueError, OSError) as error:
        grammar.error(in_words(error))
    print(report(step, groups))
    say_written(options.trace)


def report(step: Step, groups: Groups) -> str:
    """Return both tables."""
    seconds = {kind: step.mean(kind) for kind in step.stages[0].seconds}
    rows = [*seconds.items(), ("bubble", step.bubble), ("step", step.time)]
    table = [(kind, 1e3 * time, 100 * time / step.time) for kind, time in rows if time > 0]
    mesh = ", ".join(f"{axis}={size}" for axis, size in groups.mesh.items())
    lines = [
        f"{mesh}: {groups.ranks:,} ranks on {groups.hosts[-1] + 1:,} hosts; {step.samples:,} samples in a step",
        tabulate(table, ["", "ms", "%"], floatfmt=("", ",.2f", ".1f")),
        f"{step.samples / step.time:,.1f} samples/s" + f", {step.utilization:.1%} of the peak" * (step.utilization > 0),
    ]
    if step.collectives:
        heads = ["axis", "collective", "algorithm", "bytes", "ms"]
        found = [
            (each.axis, each.primitive, each.algorithm, each.nbytes, 1e3 * each.seconds) for each in step.collectives
        ]
        lines.append(tabulate(found, heads, floatfmt=",.3f", intfmt=","))
    return "\n\n".join(lines)

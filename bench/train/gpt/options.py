"""The command line of ``python -m bench.train --model gpt``."""

from __future__ import annotations

import argparse
import math
import os

from pycoll.base.command_line import Parser
from pycoll.parallel import Mesh
from pycoll.schedule.pipeline import SCHEDULES

from ...usage import typed
from .model import AXES, SEQUENCES, Plan, along, check, check_batch
from .text import TOKENS
from .weights import Size

DESCRIPTION = """Train a small GPT on the sources of Python's standard library, character by character.

The axes of the mesh say what is divided over ranks: sequences of the batch (dp; fsdp: also parameters; ep: also
experts), layers (pp), positions of a sequence (sp), weights (tp).  --compare trains with each of them and on one
process, and compares losses and parameters."""


def parse(argv: list[str], ranks: int) -> argparse.Namespace:
    """Parse the command line; errors end the program."""
    parser = Parser(
        prog=typed("python -m bench.train --model gpt"),
        description=typed(DESCRIPTION),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mesh", metavar="AXIS=N,...", help=f"axes of the mesh: {', '.join(AXES)} (dp=all ranks)")
    parser.add_argument(
        "--sequence",
        choices=["ulysses", "ring", "megatron"],
        help="how positions are divided: over sp for attention (ulysses, ring), or over tp between layers (megatron)",
    )
    parser.add_argument("--experts", type=int, default=0, help="experts in each layer (none)")
    parser.add_argument("--pipeline", choices=SCHEDULES, default="1f1b", help="schedule of pp (%(default)s)")
    parser.add_argument("--compare", action="store_true", help="compare with one process: the mesh, or all kinds")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")

    parser.add_argument("--save", metavar="DIR", help="write a checkpoint to DIR at each report")
    parser.add_argument("--resume", metavar="DIR", help="start from the checkpoint in DIR, which may have another mesh")

    size = parser.add_argument_group("model and data")
    size.add_argument("--layers", type=int, help="layers (4)")
    size.add_argument("--width", type=int, help="width (128)")
    size.add_argument("--heads", type=int, help="heads (4)")
    size.add_argument("--length", type=int, help="characters in a sequence (128)")
    size.add_argument("--batch", type=int, help="sequences in a global batch (32)")
    size.add_argument("--dtype", choices=["float64", "float32"], help="dtype (float32; with --compare float64)")
    size.add_argument("--seed", type=int, default=1, help="seed of weights and batches (%(default)s)")

    how = parser.add_argument_group("training")
    how.add_argument("--steps", type=int, help="steps (500; with --compare 20)")
    how.add_argument("--stop", type=int, metavar="N", help="stop after step N of --steps")
    how.add_argument("--rate", type=float, default=2e-3, help="highest learning rate (%(default)s)")
    how.add_argument("--micro-batches", type=int, help="micro-batches for each step (1; with pp: two for each stage)")
    how.add_argument("--every", type=int, default=50, metavar="N", help="report after N steps (%(default)s)")
    options = parser.parse_args(argv)
    for name in ("layers", "width", "heads", "length", "batch", "steps", "micro_batches", "every", "stop"):
        if (number := getattr(options, name)) is not None and number < 1:
            parser.error(f"--{name.replace('_', '-')} {number} is not positive")
    if options.resume and not os.path.isdir(options.resume):
        parser.error(f"--resume {options.resume}: no such directory")
    if options.compare and (options.save or options.resume or options.stop):
        parser.error("--compare cannot be combined with --save, --resume or --stop")
    try:
        options.axes = axes_of(options.mesh, ranks)
        complete(options, ranks)
        needed = {"ulysses": "sp", "ring": "sp", "megatron": "tp"}.get(options.sequence)
        if needed and needed not in options.axes and (options.mesh or not options.compare):
            raise ValueError(f"--sequence {options.sequence} divides positions over {needed}, which is not in the mesh")
        if options.compare and options.experts and options.axes.get("sp", 1) > 1:
            raise ValueError("--compare: with experts, sp must be 1, because each rank limits the rows of its experts")
        with Mesh(**options.axes) as mesh:
            check(options.size, mesh, options.plan)
            check_batch(options.batch, along(mesh, *SEQUENCES).size, options.plan.micro_batches)
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    return options


def axes_of(given: str | None, ranks: int) -> dict[str, int]:
    """Return the axes of a mesh from ``dp=2,tp=2``."""
    if given is None:
        return {"dp": ranks}
    axes = {}
    for part in given.split(","):
        name, equals, number = part.partition("=")
        if name not in AXES or not equals or not number.isdecimal():
            raise ValueError(f"--mesh {given}: {part!r} is not AXIS=N with an axis of {', '.join(AXES)}")
        axes[name] = int(number)
    return axes


def complete(options: argparse.Namespace, ranks: int) -> None:
    """Set what was not given; with --compare, so that every kind of parallelism fits the number of ranks."""
    divided = ranks if options.compare else 1
    heads = options.heads or math.lcm(4, divided)
    options.size = Size(
        tokens=TOKENS + -TOKENS % (ranks if options.compare else options.axes.get("tp", 1)),
        length=options.length or (4 * ranks if options.compare else 128),
        width=options.width or (8 * heads if options.compare else 128),
        heads=heads,
        layers=options.layers or max(4, 2 * divided),
        experts=options.experts,
    )
    options.batch = options.batch or (2 * ranks if options.compare else 32)
    options.steps = options.steps or (20 if options.compare else 500)
    options.dtype = options.dtype or ("float64" if options.compare else "float32")
    stages = options.axes.get("pp", 1)
    options.plan = Plan(
        attention="ring" if options.sequence == "ring" else "ulysses",
        sequence=options.sequence == "megatron",
        pipeline=options.pipeline,
        chunks=2 if options.pipeline == "interleaved" else 1,
        micro_batches=options.micro_batches or (2 * stages if stages > 1 else 1),
        rate=options.rate,
        steps=options.steps,
    )

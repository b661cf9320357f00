"""Train a small GPT, which a mesh of ranks divides in five ways.

    mpiexec -n 4 python examples/gpt --dp 2 --tp 2

The axes of the mesh are

    dp  data parallelism: ranks have different sequences of a batch, and average their gradients;
    ep  expert parallelism: as dp, but ranks also have different experts (Switch Transformers);
    pp  pipeline parallelism: ranks have different layers, and micro-batches pass through them (1F1B);
    sp  sequence parallelism: ranks have different positions of each sequence (ring attention, or Ulysses);
    tp  tensor parallelism: ranks have different columns and rows of each weight (Megatron-LM).

The product of the axes is the number of ranks.  --check compares the losses with those of one process.
model.py has the model.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from model import ATTENTION, HEADS, LAYERS, LENGTH, TOKENS, Gpt, Settings
from mpi4py import MPI

import pycoll
from pycoll.parallel import AdamW, Mesh

BATCH = 24  # sequences, over all ranks
RATE = 0.005  # of learning
CHECKED = 10  # steps; later, differences of rounding grow
AXES = ("dp", "ep", "pp", "sp", "tp")  # ranks along the last one are neighbors, because tp sends the most


class Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(2, f"{self.prog}: {message}\n")


def parse(ranks: int) -> argparse.Namespace:
    """Parse the command line and read the text; errors end the program."""
    parser = Parser("gpt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dp", type=positive, metavar="N", help="by default, all ranks that other axes leave")
    for axis in AXES[1:]:
        parser.add_argument(f"--{axis}", type=positive, metavar="N", default=1, help="1 by default")
    parser.add_argument("--attention", choices=ATTENTION, default="ring", help="attention over sp (%(default)s)")
    parser.add_argument("--experts", type=positive, metavar="N", default=0, help="experts in each layer (none)")
    parser.add_argument("--micro-batches", type=positive, metavar="N", help="micro-batches of a step (N of --pp)")
    parser.add_argument("--steps", type=positive, metavar="N", default=100, help="steps (%(default)s)")
    parser.add_argument("--text", metavar="FILE", help="file to learn from (argparse.py of Python)")
    parser.add_argument("--check", action="store_true", help="compare the first ten losses with one process")
    options = parser.parse_args()
    others = math.prod(getattr(options, axis) for axis in AXES[1:])
    options.dp = options.dp or max(1, ranks // others)
    options.micro_batches = options.micro_batches or options.pp
    try:
        check_sizes(options, ranks)
        options.text = read(Path(options.text or argparse.__file__))
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"--text {options.text}: {error.strerror}")
    return options


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def check_sizes(options: argparse.Namespace, ranks: int) -> None:
    """Raise ValueError if the ranks cannot divide the model and the batch into equal parts."""
    dp, ep, pp, sp, tp = (getattr(options, axis) for axis in AXES)
    if dp * ep * pp * sp * tp != ranks:
        axes = " * ".join(f"{axis}={getattr(options, axis)}" for axis in AXES if getattr(options, axis) > 1) or "dp=1"
        raise ValueError(f"{axes} needs {dp * ep * pp * sp * tp} ranks, but there are {ranks}")
    ring = options.attention == "ring"
    for what, number, parts in [
        ("sequences of a batch", BATCH, {"dp": dp, "ep": ep, "micro-batches": options.micro_batches}),
        ("experts", options.experts, {"ep": ep}),
        ("layers", LAYERS, {"pp": pp}),
        ("positions", LENGTH, {"pieces of each rank": 2, "sp": sp} if ring else {"sp": sp}),
        ("heads", HEADS, {"tp": tp} if ring else {"tp": tp, "sp": sp}),
    ]:
        if number % math.prod(parts.values()):
            over = " * ".join(f"{name}={size}" for name, size in parts.items())
            raise ValueError(f"{number} {what} cannot be divided equally over {over}")
    if ep > 1 and not options.experts:
        raise ValueError(f"--ep {ep} needs --experts")
    if options.check and options.experts and sp > 1:
        raise ValueError("--check with experts needs sp=1: each rank limits the rows of its positions")


def read(path: Path) -> np.ndarray:
    """Return the characters of a file; those that are not ASCII become a question mark."""
    text = np.frombuffer(path.read_bytes(), np.uint8)
    if len(text) <= LENGTH:
        raise ValueError(f"--text {path}: {len(text)} characters are too few; at least {LENGTH + 1} are needed")
    return np.where(text < TOKENS, text, ord("?"))


def batch(text: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random sequences, and the character after each of their characters; the same on all ranks."""
    starts = np.random.default_rng(step).integers(len(text) - LENGTH, size=(BATCH, 1))
    window = text[starts + np.arange(LENGTH + 1)].astype(np.int64)
    return window[:, :-1], window[:, 1:]


def train(mesh: Mesh, settings: Settings, text: np.ndarray, steps: int) -> Iterator[float]:
    """Train, and yield the loss of each step."""
    gpt = Gpt(mesh, settings)
    optimizer = AdamW(gpt.parameters, lr=RATE)
    for step in range(steps):
        loss, gradients = gpt.learn(*batch(text, step))
        optimizer.step(gradients)
        yield loss
    gpt.free()


def alone(options: argparse.Namespace) -> list[float]:
    """Return the first losses of one process, whose experts take a limited number of rows from each part of a batch."""
    settings = Settings(experts=options.experts, groups=options.dp * options.ep * options.micro_batches)
    with Mesh(MPI.COMM_SELF, **dict.fromkeys(AXES, 1)) as mesh:
        return list(train(mesh, settings, options.text, min(options.steps, CHECKED)))


def main() -> None:
    """Train, and print the loss."""
    comm, options = MPI.COMM_WORLD, None
    try:
        if comm.rank == 0:
            options = parse(comm.size)
    finally:
        options = comm.bcast(options)  # None if rank 0 exits, because of an error or --help
    if options is None:
        sys.exit()
    settings = Settings(options.attention, options.experts, options.micro_batches)
    losses = []
    with Mesh(**{axis: getattr(options, axis) for axis in AXES}) as mesh:
        for step, loss in enumerate(train(mesh, settings, options.text, options.steps), 1):
            losses.append(loss)
            if comm.rank == 0 and (step % 10 == 0 or step == options.steps):
                print(f"step {step:3}: loss {loss:.3f}", flush=True)
    if options.check:  # each rank does the same
        difference = np.abs(np.array(losses[:CHECKED]) / alone(options) - 1).max()
        if comm.rank == 0:
            print(f"largest difference of the first {CHECKED} losses from one process: {difference:.1e}")
        assert difference < 1e-10


if __name__ == "__main__":
    pycoll.abort_on_exception()
    main()

"""Trains a perceptron data-parallel: ``mpiexec -n 4 python -m bench.train --driver {ps,ddp,fsdp}``.

On scikit-learn's digits, or with --synthetic on random numbers for timing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

import pycoll
from pycoll import parallel
from pycoll.base.command_line import printed_once
from pycoll.base.files import write_json
from pycoll.tune.environment import environment

from ..results import table
from ..usage import typed
from .compare import COLUMNS, compare
from .data import CLASSES, digits, synthetic
from .epochs import train
from .model import Perceptron
from .trainers import HOOKS, OPTIMIZERS, TRAINERS

ALLOWED = 1e-10  # relative difference to one process, in float64
LINE = (
    "epoch {epoch:3}: loss {loss:.6f}, accuracy {accuracy:.2%}, {samples_per_second:.0f} samples/s, "
    "{communication:.0%} of the time in communication, {sent:.0f} bytes sent per rank (at most {sent_most})"
)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; what is wrong with it ends the program."""
    show = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(
        prog=typed("python -m bench.train"), description=typed(__doc__), formatter_class=show
    )
    parser.add_argument("--driver", choices=TRAINERS, default="ddp")
    parser.add_argument("--compare", action="store_true", help="one process and all drivers, side by side")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--save", metavar="DIR", help="write a checkpoint there after each epoch")
    parser.add_argument("--resume", metavar="DIR", help="begin with this checkpoint")

    what = parser.add_argument_group("what is learned")
    what.add_argument("--epochs", type=positive, default=20)
    what.add_argument("--steps", type=positive, help="at most so many in an epoch, or with --compare in all")
    what.add_argument("--batch", type=positive, default=64, help="samples in a global batch")
    what.add_argument("--hidden", type=positive, default=64, help="width of the hidden layers")
    what.add_argument("--layers", type=positive, default=2, help="number of hidden layers")
    what.add_argument("--synthetic", type=positive, metavar="SAMPLES", help="random samples as wide as the layers")
    what.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    what.add_argument("--seed", type=int, default=1)

    how = parser.add_argument_group("how it is learned")
    how.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    how.add_argument("--rate", type=float, help="learning rate (0.05, stale updates: 0.2); async workers share it")
    how.add_argument("--momentum", type=float, help="of sgd (0.9, stale updates: 0, since they act like a momentum)")
    how.add_argument("--weight-decay", type=float, default=0.0)
    how.add_argument("--clip", type=float, metavar="NORM", help="clip gradients to this global norm (not ps)")
    how.add_argument("--accumulate", type=positive, default=1, metavar="A", help="backward passes in a step")

    ps = parser.add_argument_group("parameter server")
    ps.add_argument("--mode", choices=["sync", "async", "bounded"], default="sync")
    ps.add_argument("--staleness", type=int, default=0, metavar="S", help="of mode bounded")
    ps.add_argument("--servers", type=positive, default=1, metavar="K")
    ps.add_argument("--colocated", action="store_true", help="the first workers serve as well")
    ps.add_argument("--update", choices=["server", "worker"], default="server", help="who has the optimizer")
    ps.add_argument("--ranks-per-worker", type=ranks_per_worker, default=1, help="a number, or 'host'")

    ddp = parser.add_argument_group("DDP")
    ddp.add_argument("--compress", choices=HOOKS)
    ddp.add_argument("--bucket-mb", type=float, default=25.0, metavar="MIB")
    ddp.add_argument("--no-overlap", action="store_true", help="communicate when all gradients are there")

    fsdp = parser.add_argument_group("FSDP")
    fsdp.add_argument("--param-dtype", choices=["float16", "bfloat16"], help="to gather and compute in")
    fsdp.add_argument("--no-prefetch", action="store_true")
    fsdp.add_argument("--keep-gathered", action="store_true", help="between forward and backward pass")
    parser.add_argument("--progress-thread", action="store_true", help="communicate in the background")
    options = parser.parse_args(argv)
    check(parser, options)
    stale = options.driver == "ps" and (options.mode == "async" or options.staleness > 0)
    options.rate = (0.2 if stale else 0.05) if options.rate is None else options.rate
    options.momentum = (0.0 if stale else 0.9) if options.momentum is None else options.momentum
    return options


def positive(text: str) -> int:
    """A number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def ranks_per_worker(text: str) -> int | str:
    """A number from 1, or "host"."""
    return text if text == "host" else positive(text)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program if options do not go together."""
    if options.compare and (options.accumulate > 1 or options.compress or options.save or options.resume):
        parser.error("--compare goes without --accumulate, --compress, --save and --resume")
    if options.clip and options.driver == "ps" and not options.compare:
        parser.error("--clip does not go with --driver ps: a server sees only its share of the gradients")
    if options.compress and options.driver != "ddp":
        parser.error(f"--compress does not go with --driver {options.driver}")
    if options.mode != "bounded" and options.staleness:
        parser.error(f"--staleness {options.staleness} does not go with --mode {options.mode}")


def document(options: argparse.Namespace, where: dict, records: list[dict]) -> dict:
    """What goes into the JSON file."""
    return {"environment": where, "options": vars(options), "records": records}


def report(records: list[dict], options: argparse.Namespace, comm: MPI.Intracomm) -> int:
    """Print the comparison; 1 if drivers that must agree with one process do not."""
    if comm.rank == 0:
        print(table(records, COLUMNS))
    if options.dtype != "float64" or options.mode == "async" or options.staleness or options.param_dtype:
        return 0
    return int(max(max(record["difference"], record["loss_difference"]) for record in records) > ALLOWED)


def share_cores(comm: MPI.Intracomm) -> None:
    """Give each rank its share of the cores to multiply matrices with, unless the user has said how many."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    if not any(variable.endswith("NUM_THREADS") for variable in os.environ):
        threadpool_limits(max(1, len(os.sched_getaffinity(0)) // host.size))
    host.Free()


def main(argv: list[str]) -> int:
    """Train, or compare; 1 if a comparison finds a driver that differs from one process."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parse(argv)
    where = environment(comm)
    dtype = np.dtype(options.dtype)
    features = options.hidden if options.synthetic else 64
    training, test = synthetic(dtype, options.synthetic, features) if options.synthetic else digits(dtype, comm)
    share_cores(comm)
    model = Perceptron([features, *[options.hidden] * options.layers, CLASSES])
    with pycoll.progress_thread() if options.progress_thread else contextlib.nullcontext():
        if options.compare:
            records = compare(model, training, options, comm)
            if comm.rank == 0 and options.json:  # before printing, which may fail
                write_json(options.json, document(options, where, records))
            return report(records, options, comm)
        trainer = TRAINERS[options.driver](model, options, comm)
        first = 0
        if options.resume:
            first = parallel.load(options.resume, trainer.driver, trainer.optimizer)["epochs"]
        epochs = []
        for epoch in train(trainer, training, test, options, first):
            epochs.append(epoch)
            if options.save:
                parallel.save(options.save, trainer.driver, trainer.optimizer, {"epochs": epoch.epoch})
            if comm.rank == 0:
                print(LINE.format(**epoch._asdict()), flush=True)
        trainer.free()
    if comm.rank == 0 and options.json:
        write_json(options.json, document(options, where, [epoch._asdict() for epoch in epochs]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

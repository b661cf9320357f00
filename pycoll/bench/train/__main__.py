"""Train a perceptron with data parallelism: ``mpiexec -n 4 python -m pycoll.bench.train --driver {ps,ddp,fsdp,local}``.

The data are the scikit-learn digits; with --synthetic they are random numbers, for timing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll import parallel
from pycoll.base.command_line import Parser, printed_once
from pycoll.tune.environment import environment

from ..cores import share_cores
from ..results import table, write_results
from .compare import COLUMNS, compare
from .data import CLASSES, digits, synthetic
from .elastic import train_elastic
from .epochs import train
from .model import Perceptron
from .stop import Stop
from .trainers import DRIVERS, HOOKS, OPTIMIZERS

ALLOWED = 1e-10  # maximum relative difference from one process, in float64
LINE = (
    "epoch {epoch:3}: loss {loss:.6f}, accuracy {accuracy:.2%}, {samples_per_second:.0f} samples/s, "
    "{communication:.0%} of the time in communication, {sent:.0f} bytes sent per rank (at most {sent_most})"
)


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; errors end the program."""
    parser = Parser(prog="python -m pycoll.bench.train", description=__doc__)
    parser.add_argument("--driver", choices=DRIVERS, default="ddp", help="how ranks share the work (%(default)s)")
    parser.add_argument("--compare", action="store_true", help="compare one process and all drivers")
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.add_argument(
        "--save",
        metavar="DIR",
        help="write a checkpoint to DIR after each epoch; SIGUSR1 and SIGTERM then stop the program after an epoch",
    )
    parser.add_argument("--resume", metavar="DIR", help="start from the checkpoint in DIR")

    elastic = parser.add_argument_group("elastic training (needs mpiexec --with-ft ulfm, of Open MPI)")
    elastic.add_argument(
        "--elastic", action="store_true", help="go on without ranks that fail, and from the checkpoint in --save DIR"
    )
    elastic.add_argument(
        "--copy-every", type=positive, default=1, metavar="K", help="steps between copies of shards (%(default)s)"
    )
    elastic.add_argument("--replace", action="store_true", help="start new processes for ranks that fail")

    what = parser.add_argument_group("model and data")
    what.add_argument("--epochs", type=positive, default=20, help="passes over the data (%(default)s)")
    what.add_argument("--steps", type=positive, help="maximum steps per epoch; with --compare, in total")
    what.add_argument("--batch", type=positive, default=64, help="samples in a global batch (%(default)s)")
    what.add_argument("--hidden", type=positive, default=64, help="width of the hidden layers (%(default)s)")
    what.add_argument("--layers", type=positive, default=2, help="number of hidden layers (%(default)s)")
    what.add_argument("--synthetic", type=positive, metavar="SAMPLES", help="use random samples, as wide as the layers")
    what.add_argument("--dtype", choices=["float64", "float32"], default="float64", help="dtype (%(default)s)")
    what.add_argument("--seed", type=int, default=1, help="seed of parameters and batches (%(default)s)")

    how = parser.add_argument_group("optimizer")
    how.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="optimizer (%(default)s)")
    how.add_argument("--rate", type=float, help="learning rate (0.05; stale updates: 0.2); async workers share it")
    how.add_argument("--momentum", type=float, help="momentum of sgd (0.9; stale updates: 0)")
    how.add_argument("--weight-decay", type=float, default=0.0, help="weight decay (%(default)s)")
    how.add_argument("--clip", type=float, metavar="NORM", help="clip gradients to this global norm (not ps)")
    how.add_argument(
        "--accumulate", type=positive, default=1, metavar="A", help="backward passes per step (%(default)s)"
    )

    ps = parser.add_argument_group("parameter server")
    ps.add_argument("--mode", choices=["sync", "async", "bounded"], default="sync", help="mode (%(default)s)")
    ps.add_argument(
        "--staleness",
        type=int,
        default=0,
        metavar="S",
        help="maximum staleness of mode bounded, in steps (%(default)s)",
    )
    ps.add_argument("--servers", type=positive, default=1, metavar="K", help="number of servers (%(default)s)")
    ps.add_argument("--colocated", action="store_true", help="run the servers on the ranks of the first workers")
    ps.add_argument(
        "--update", choices=["server", "worker"], default="server", help="where the optimizer runs (%(default)s)"
    )
    ps.add_argument("--ranks-per-worker", type=ranks_per_worker, default=1, help="a number, or 'host' (%(default)s)")

    ddp = parser.add_argument_group("DDP")
    ddp.add_argument("--compress", choices=HOOKS, help="compression of the gradients (none)")
    ddp.add_argument("--bucket-mb", type=float, default=25.0, metavar="MIB", help="size of a bucket (%(default)s)")
    ddp.add_argument("--no-overlap", action="store_true", help="communicate after all gradients are computed")

    fsdp = parser.add_argument_group("FSDP")
    fsdp.add_argument("--param-dtype", choices=["float16", "bfloat16"], help="dtype of gathered parameters")
    fsdp.add_argument("--no-prefetch", action="store_true", help="do not gather units in advance")
    fsdp.add_argument("--keep-gathered", action="store_true", help="keep units between forward and backward pass")

    local = parser.add_argument_group("local SGD")
    local.add_argument("--every", type=positive, default=8, metavar="H", help="steps between averages (%(default)s)")
    local.add_argument(
        "--outer", choices=["average", "diloco"], default="average", help="what is done with averages (%(default)s)"
    )
    parser.add_argument("--progress-thread", action="store_true", help="communicate in the background")
    options = parser.parse_args(argv)
    check(parser, options)
    stale = options.driver == "ps" and (options.mode == "async" or options.staleness > 0)
    options.rate = (0.2 if stale else 0.05) if options.rate is None else options.rate
    options.momentum = (0.0 if stale else 0.9) if options.momentum is None else options.momentum
    return options


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def ranks_per_worker(text: str) -> int | str:
    """Parse a positive integer, or "host"."""
    return text if text == "host" else positive(text)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program if options cannot be combined."""
    if options.compare and (options.accumulate > 1 or options.compress or options.save or options.resume):
        parser.error("--compare cannot be combined with --accumulate, --compress, --save or --resume")
    if options.clip and options.driver == "ps" and not options.compare:
        parser.error("--clip cannot be combined with --driver ps: a server sees only a part of the gradients")
    if options.clip is not None and options.clip <= 0:
        parser.error(f"--clip {options.clip} is not positive")
    if options.resume and not os.path.isdir(options.resume):
        parser.error(f"--resume {options.resume}: no such directory")
    if options.driver == "local" and options.save:
        parser.error(f"--driver local cannot be combined with --save {options.save}: an epoch may end between averages")
    if options.compress and options.driver != "ddp":
        parser.error(f"--compress {options.compress} needs --driver ddp, not --driver {options.driver}")
    if options.elastic and (options.compare or options.resume or options.driver == "local"):
        parser.error("--elastic cannot be combined with --compare, --resume or --driver local")
    if options.replace and not options.elastic:
        parser.error("--replace needs --elastic")
    if options.mode != "bounded" and options.staleness:
        parser.error(f"--staleness {options.staleness} needs --mode bounded, not --mode {options.mode}")


def document(options: argparse.Namespace, where: dict, records: list[dict]) -> dict:
    """Return the content of the JSON file."""
    return {"environment": where, "options": vars(options), "records": records}


def report(records: list[dict], options: argparse.Namespace, comm: MPI.Intracomm) -> int:
    """Print the comparison; return 1 if a driver differs from one process although the results must be equal."""
    if comm.rank == 0:
        print(table(records, COLUMNS))
    if options.dtype != "float64" or options.mode == "async" or options.staleness or options.param_dtype:
        return 0
    return int(max(max(record["difference"], record["loss_difference"]) for record in records) > ALLOWED)


def main(argv: list[str]) -> int:
    """Train or compare; return 1 if a comparison finds a driver that differs from one process."""
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
            if comm.rank == 0:  # first, because printing may fail
                write_results(options.json, document(options, where, records))
            return report(records, options, comm)
        if options.elastic:
            result, first = train_elastic(model, training, test, options)
            if first:
                write_results(options.json, document(options, where, [result._asdict()]))
            return 0
        trainer = DRIVERS[options.driver](model, options, comm)
        first = 0
        if options.resume:
            first = parallel.load(options.resume, trainer.driver, trainer.optimizer)["epochs"]
        epochs = []
        stop = Stop() if options.save else None
        for epoch in train(trainer, training, test, options, first):
            epochs.append(epoch)
            if comm.rank == 0:  # first, so that a job that is killed and resumed has printed each epoch
                print(LINE.format(**epoch._asdict()), flush=True)
            if options.save:
                parallel.save(options.save, trainer.driver, trainer.optimizer, {"epochs": epoch.epoch})
            if stop and (name := stop.asked(comm)):
                if comm.rank == 0:
                    print(f"stopped after {name}; continue with --resume {options.save}", flush=True)
                break
        trainer.free()
    if comm.rank == 0:
        write_results(options.json, document(options, where, [epoch._asdict() for epoch in epochs]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

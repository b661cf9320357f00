"""Compare simulated training steps with measured ones: ``mpiexec -n 4 python -m pycoll.bench.train.predicted``.

The network model is first calibrated with messages between pairs of ranks, or read from --network.  Steps of
`DistributedDataParallel` average gradients after the backward pass ("apart"), or during it with the progress thread
("overlapped"); the batch is chosen so that the backward pass takes about as long as the averaging.  Both passes are also
timed without communication, on all ranks at the same time, alternately with the steps.  The stages of pipelines sleep
instead of computing.  The simulation gets the times of the passes, and predicts the steps.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

import pycoll
from pycoll.base.command_line import Parser, check_folder, in_words, printed_once, say_written
from pycoll.base.files import write_json, write_text
from pycoll.base.progress_bar import progress_bar
from pycoll.runtime.attach import attach
from pycoll.simulate.calibrate import calibrate
from pycoll.simulate.network import Network, read
from pycoll.simulate.training import Groups, How, Layer, Model, simulate_step
from pycoll.tune.environment import environment

from ..results import table
from . import bubble, overlap

ALGORITHM = "ring"
DDP = [(256, 8, 256), (256, 8, 1024), (128, 16, 128), (256, 16, 512), (256, 16, 8192), (512, 4, 1024)]
PIPELINES = [("gpipe", 64), ("1f1b", 64), ("1f1b", 256), ("zb-h1", 256)]
MICRO_BATCHES, MILLISECONDS = 8, 30.0
COLUMNS = {
    "driver": ("driver", ""),
    "what": ("configuration", ""),
    "predicted": ("predicted (ms)", ".1f"),
    "median": ("measured (ms)", ".1f"),
    "error": ("error (%)", "+.1f"),
}


def model_of(step: overlap.Step, forward: float, backward: float) -> Model:
    """Return the layers of a perceptron; matrix products decide which share of the passes each layer takes."""
    sizes = [sum(step.parameters[f"layer{layer}.{part}"].size for part in ("weight", "bias")) for layer in step.model.layers]
    back = [size * (2 if layer else 1) for layer, size in enumerate(sizes)]  # the first layer has no gradient to pass on
    return Model(
        "perceptron",
        tuple(
            Layer(f"layer{n}", size, 0, forward * size / sum(sizes), backward * back[n] / sum(back))
            for n, size in enumerate(sizes)
        ),
    )


def ddp(hidden: int, layers: int, bucket: int, rounds: int, groups: Groups, comm: MPI.Intracomm) -> list[dict[str, Any]]:
    """Return the records of a perceptron with DDP."""
    step = overlap.Step(SimpleNamespace(hidden=hidden, layers=layers, bucket_kb=bucket), comm, ALGORITHM)  # type: ignore[arg-type]
    overlap.calibrate(step, comm)
    times: dict[str, list[tuple[float, float]]] = {"alone": [], "apart": [], "overlapped": []}
    for _ in range(rounds):
        for name, seconds in times.items():
            first, kept = overlap.timed(comm, step.forward)
            if name == "alone":
                rest = partial(step.backward, *kept, lambda name, gradient: None)
            else:
                rest = partial(step.apart if name == "apart" else step.overlapped, *kept)
            if name == "overlapped":
                with pycoll.progress_thread():
                    seconds.append((first, overlap.timed(comm, rest)[0]))
            else:
                seconds.append((first, overlap.timed(comm, rest)[0]))
    step.ddp.free()
    model = model_of(step, *np.median(times.pop("alone"), axis=0).tolist())
    nbytes = sum(array.nbytes for array in step.parameters.values())
    samples = len(step.batch.digits)
    what = f"{layers} layers of {hidden}, {nbytes / 1e6:.1f} MB, {samples} samples, buckets of {bucket} KiB"
    return [
        record(
            "DDP",
            f"{what}, {name}",
            simulate_step(model, groups, How(bucket=bucket << 10, overlap=name == "overlapped")).time,
            np.median(np.sum(seconds, axis=1)),
        )
        for name, seconds in times.items()
    ]


def pipeline(name: str, activation: int, rounds: int, groups: Groups, comm: MPI.Intracomm) -> dict[str, Any]:
    """Return the record of a pipeline whose stages sleep."""
    options = {"ms": MILLISECONDS, "micro_batches": MICRO_BATCHES, "activation_kb": activation, "rounds": rounds}
    idle, seconds = bubble.measure(name, argparse.Namespace(**options), comm)
    forward = (1 - idle) * seconds / MICRO_BATCHES / 3  # as long as it really slept
    model = Model("sleepers", (Layer("sleeper", 0, activation << 10, forward, 2 * forward, repeat=comm.size),))
    return record("pipeline", f"{name}, {activation} KiB", simulate_step(model, groups, How(MICRO_BATCHES, name)).time, seconds)


def record(driver: str, what: str, predicted: float, measured: float) -> dict[str, Any]:
    """Return a record with both times in milliseconds."""
    times = {"predicted": predicted * 1e3, "median": float(measured) * 1e3}
    return {"driver": driver, "what": what, **times, "error": float(100 * (predicted / measured - 1))}


def parse(comm: MPI.Intracomm, argv: list[str]) -> argparse.Namespace:
    """Parse the command line; errors end the program."""
    parser = Parser(prog="python -m pycoll.bench.train.predicted", description=__doc__)
    parser.add_argument("--network", metavar="FILE", type=Path, help="file of `python -m pycoll.simulate --calibrate`")
    parser.add_argument("--rounds", type=int, default=7, help="number of measurements of each step (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="measure only one configuration of each driver")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the records to FILE")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="also write a Markdown table to FILE")
    with printed_once(comm):
        options = parser.parse_args(argv)
        try:
            options.network = options.network and read(options.network)
            if comm.size < 2 or options.rounds < 1:
                raise ValueError(f"{comm.size} ranks, --rounds {options.rounds}: there is nothing to measure")
            check_folder("--json", options.json)
            check_folder("--markdown", options.markdown)
        except (ValueError, OSError) as error:
            parser.error(in_words(error))
    return options


def groups_of(axis: str, network: Network, comm: MPI.Intracomm) -> Groups:
    """Return a mesh of one axis with all ranks; a host has as many ranks as the first one."""
    hosts = attach(comm).facts.hosts or tuple(range(comm.size))
    return Groups({axis: comm.size}, network, hosts.count(hosts[0]), algorithms={"dp": ALGORITHM} if axis == "dp" else {})


def main(argv: list[str]) -> None:
    """Calibrate, measure, simulate, and print the comparison."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    options = parse(comm, argv)
    threadpool_limits(1)
    network, _ = (options.network, []) if options.network else calibrate(comm)
    where = environment(comm)
    replicas, stages = (groups_of(axis, network, comm) for axis in ("dp", "pp"))
    todo = [partial(ddp, *each, options.rounds, replicas, comm) for each in DDP[: 1 if options.quick else None]]
    todo += [partial(pipeline, *each, options.rounds, stages, comm) for each in PIPELINES[: 1 if options.quick else None]]
    records: list[dict[str, Any]] = []
    for measure in progress_bar(todo, "predicted", "configuration", shown=comm.rank == 0):
        found = measure()
        records += found if isinstance(found, list) else [found]
    if comm.rank == 0:
        if options.json:
            write_json(options.json, {"environment": where, "network": asdict(network), "records": records})
        if options.markdown:
            write_text(options.markdown, f"{where['mpi']}: {said(records)}\n\n{table(records, COLUMNS, 'github')}\n")
        print(f"{network}\n\n{table(records, COLUMNS)}\n\n{said(records)}")
        say_written(options.json, options.markdown)


def said(records: list[dict[str, Any]]) -> str:
    """Summarize the errors of the predictions."""
    errors = np.abs([record["error"] for record in records])
    return f"error: median {np.median(errors):.1f}%, worst {errors.max():.1f}%"


if __name__ == "__main__":
    main(sys.argv[1:])

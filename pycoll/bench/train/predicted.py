"""Compare simulated training steps with measured ones: ``python -m pycoll.bench.train.predicted RECORDS...``.

RECORDS are files that `pycoll.bench.train.overlap` and `pycoll.bench.train.bubble` wrote with --json on hosts with one
rank each.  The simulation gets the measured times of the passes without communication, and a network that
``python -m pycoll.simulate --calibrate -o FILE`` measured on the same hosts.  No MPI is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from pycoll.base.command_line import Parser, in_words
from pycoll.selection.rules import choose
from pycoll.simulate.network import Network, read
from pycoll.simulate.training import Groups, How, Layer, Model, simulate_step
from pycoll.tune.options import size_label

Row = tuple[str, str, float, float, float]
COLUMNS = "record", "step", "predicted (ms)", "measured (ms)", "error (%)"
CHUNKS = {"interleaved": 2}  # of each stage; other schedules have one


def perceptron(width: int, layers: int, outputs: int, forward: float, backward: float) -> Model:
    """Return a perceptron whose layers take shares of both passes by the operations of their matrix products."""
    widths = [width] * (layers + 1) + [outputs]
    sizes = [rows * columns + columns for rows, columns in pairwise(widths)]
    back = [size * (2 if layer else 1) for layer, size in enumerate(sizes)]  # the first layer passes no gradient on
    shares = zip(sizes, np.array(sizes) / sum(sizes), np.array(back) / sum(back))
    found = [Layer(str(n), size, 0, forward * first, backward * rest) for n, (size, first, rest) in enumerate(shares)]
    return Model("perceptron", tuple(found))


def overlaps(document: dict[str, Any], network: Network) -> Iterator[tuple[str, float, float]]:
    """Yield each way of averaging, with the predicted and the measured milliseconds of a step."""
    ranks, options, record = document["environment"]["ranks"], document["options"], document["record"]
    bucket = options["bucket_kb"] << 10
    model = perceptron(options["hidden"], options["layers"], 10, record["forward"], record["backward"])
    groups = Groups({"dp": ranks}, network, algorithms={"dp": choose("allreduce", bucket, ranks, hosts=ranks)})
    for way in record["ways"]:
        how = How(bucket=bucket, overlap=way["averaging"] != "apart")
        step = simulate_step(model, groups, how)
        buckets = len(step.stages[0].buckets)
        yield f"DDP, {buckets} bucket{'s' * (buckets > 1)}, {way['averaging']}", 1e3 * step.time, way["step"]


def bubbles(document: dict[str, Any], network: Network) -> Iterator[tuple[str, float, float]]:
    """Yield each schedule of a pipeline whose stages sleep, with the predicted and the measured milliseconds."""
    ranks, options = document["environment"]["ranks"], document["options"]
    for record in document["records"]:
        name, milliseconds = record["schedule"], options["ms"]
        chunks = CHUNKS.get(name, 1)
        times = milliseconds / 1e3 / chunks, 2 * milliseconds / 1e3 / chunks
        layer = Layer("sleeper", 0, options["activation_kb"] << 10, *times, repeat=ranks * chunks)
        how = How(options["micro_batches"], name, chunks)
        step = simulate_step(Model("sleepers", (layer,)), Groups({"pp": ranks}, network), how)
        busy = 3 * milliseconds * options["micro_batches"]
        yield f"pipeline, {size_label(layer.activation)}, {name}", 1e3 * step.time, busy / (1 - record["measured"])


def compared(path: Path, network: Network) -> Iterator[Row]:
    """Yield the rows of a file; raise ValueError if it is not a record."""
    document = json.loads(path.read_text())
    kinds = {"record": overlaps, "records": bubbles}
    kind = next((kinds[name] for name in kinds if isinstance(document, dict) and name in document), None)
    try:
        if kind is None:
            raise KeyError("record")
        for step, predicted, measured in kind(document, network):
            yield path.stem, step, predicted, measured, 100 * (predicted / measured - 1)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a record of pycoll.bench.train.overlap or bubble: {error}") from None


def main(argv: Sequence[str]) -> None:
    """Simulate, and print the comparison."""
    parser = Parser(prog="python -m pycoll.bench.train.predicted", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="JSON files of measured steps")
    parser.add_argument("--network", required=True, type=Path, metavar="FILE", help="network that --calibrate wrote")
    options = parser.parse_args(argv)
    try:
        network = read(options.network)
        rows = [row for path in options.records for row in compared(path, network)]
    except (ValueError, OSError) as error:
        parser.error(in_words(error))
    errors = np.abs([row[-1] for row in rows])
    print(tabulate(rows, COLUMNS, floatfmt=("", "", ".0f", ".0f", "+.1f")))
    print(f"\nerror: median {np.median(errors):.1f}%, worst {errors.max():.1f}%")


if __name__ == "__main__":
    main(sys.argv[1:])

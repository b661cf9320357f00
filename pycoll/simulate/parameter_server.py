"""Compare a parameter server with ring all-reduce by simulation: ``python -m pycoll.simulate.parameter_server``.

The first table shows the cost of a step for growing numbers of workers p.  The link of the server carries p*Z bytes in
each direction, a link of the ring carries 2(p-1)/p*Z.  The other tables show the effect of a slow worker: the number of
gradients per second, and the staleness of the parameters from which gradients are computed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tabulate import tabulate  # type: ignore[import-untyped, unused-ignore]

from ..base.command_line import Parser, in_words
from ..tune.options import nbytes
from . import simulate
from .network import Network, read
from .ports import Port

COMPUTED, PUSHED, PULLED = range(3)
Compute = Callable[[int], float]  # returns the seconds of the next step of a worker


class Pace(NamedTuple):
    """The speed of training."""

    gradients: float  # gradients of all workers applied per second
    staleness: float  # mean number of steps (async: updates) by which the parameters of a step were behind
    server: float  # fraction of the time in which the busier direction of the link of the server was busy


class _Server:
    """One parameter server and its workers, each on a host of its own.

    The modes are those of `pycoll.parallel.ParameterServer`.  With a `bound`, step n begins with the updates through
    step n-1-bound, and an update combines gradients of all workers.  Without a bound, each gradient is an update, and a
    step begins with at most one unanswered push.  Unlike there, the server takes the gradients of all workers in the
    order of arrival.  The link of the server, combining on it and the computation of the workers take time; the links
    of the workers and the optimizer do not.
    """

    def __init__(self, workers: int, nbytes: int, bound: int | None, network: Network, compute: Compute) -> None:
        self.workers, self.nbytes, self.bound = workers, nbytes, bound
        self.network, self.compute = network, compute
        beta = network.between.beta
        self.incoming, self.outgoing = Port("server in", beta), Port("server out", beta)
        self.events: list[tuple[float, int, int, int]] = []  # time, kind, worker, number of the step or update
        self.processor = 0.0
        self.begun = [0] * workers  # steps that each worker has begun
        self.pushed = [0] * workers  # gradients that the server has
        self.answers = [0] * workers
        self.known = [0] * workers  # updates in the parameters of each worker
        self.basis: dict[tuple[int, int], int] = {}  # updates in the parameters with which a step began
        self.waits = [False] * workers  # whether a worker waits for an answer before its next step
        self.updates = self.applied = 0
        self.behind: list[int] = []

    def run(self, gradients: int) -> Pace:
        """Run until `gradients` gradients are applied."""
        now = 0.0
        for worker in range(self.workers):
            self.begin(worker, now)
        while self.applied < gradients:
            now, what, worker, number = heappop(self.events)
            (self.computed, self.arrived, self.answered)[what](worker, number, now)
        busy = max(self.incoming.busy, self.outgoing.busy)
        return Pace(self.applied / now, float(np.mean(self.behind)), min(1.0, busy / now))

    def begin(self, worker: int, now: float) -> None:
        """Begin the next step, unless the worker has to wait for an answer first."""
        step = self.begun[worker]
        if self.bound is None:
            self.waits[worker] = self.answers[worker] < step - 1
        else:
            self.waits[worker] = self.known[worker] < step - self.bound
        if not self.waits[worker]:
            self.basis[worker, step] = self.known[worker]
            self.begun[worker] += 1
            heappush(self.events, (now + self.compute(worker), COMPUTED, worker, step))

    def pass_port(self, port: Port, now: float, what: int, worker: int, number: int) -> None:
        """Send gradients to the server, or parameters from it."""
        port.take(self.nbytes, now)
        heappush(self.events, (port.free + self.network.between.alpha, what, worker, number))

    def computed(self, worker: int, step: int, now: float) -> None:
        """Handle the end of a computation: the worker pushes, and continues."""
        self.pass_port(self.incoming, now, PUSHED, worker, step)
        self.begin(worker, now)

    def arrived(self, worker: int, step: int, now: float) -> None:
        """Handle the arrival of a gradient on the server."""
        self.processor = done = max(self.processor, now) + self.nbytes * self.network.gamma
        self.applied += 1
        self.pushed[worker] += 1
        basis = self.basis.pop((worker, step))
        self.behind.append((self.updates if self.bound is None else step) - basis)
        if self.bound is None:
            self.updates += 1
            self.pass_port(self.outgoing, done, PULLED, worker, self.updates)
        elif min(self.pushed) > self.updates:
            self.updates += 1
            for each in range(self.workers):
                self.pass_port(self.outgoing, done, PULLED, each, self.updates)

    def answered(self, worker: int, updates: int, now: float) -> None:
        """Handle the arrival of parameters with `updates` updates on a worker."""
        self.known[worker] = updates
        self.answers[worker] += 1
        if self.waits[worker]:
            self.begin(worker, now)


def parameter_server(
    workers: int, nbytes: int, compute: Compute, network: Network, bound: int | None = 0, steps: int = 100
) -> Pace:
    """Simulate training with one server: `bound` 0 is synchronous, None asynchronous; `steps` are per worker."""
    return _Server(workers, nbytes, bound, network, compute).run(workers * steps)


def ring(workers: int, nbytes: int, compute: Compute, network: Network, steps: int = 100) -> Pace:
    """Simulate training with a ring all-reduce after each step; all workers wait for the slowest one."""
    seconds = simulate("allreduce", algorithm="ring", ranks=workers, nbytes=nbytes, network=network).time
    slowest = np.mean([max(map(compute, range(workers))) for _ in range(steps)])
    return Pace(workers / (float(slowest) + seconds), 0.0, 0.0)


def computing(seconds: float, slow: float, jitter: float, seed: int = 0) -> Compute:
    """Return steps of `seconds`, `slow` times as long on worker 0, each longer by a random (exponential) fraction."""
    random = np.random.default_rng(seed)

    def compute(worker: int) -> float:
        return seconds * (slow if worker == 0 else 1.0) * (1 + random.exponential(jitter) if jitter else 1.0)

    return compute


def growing(workers: Sequence[int], nbytes: int, network: Network) -> list[dict[str, Any]]:
    """Return the communication time of a step with each method, for growing numbers of workers."""
    rows = []
    for count in workers:
        seconds = {
            "server": count / parameter_server(count, nbytes, lambda worker: 0.0, network, steps=20).gradients,
            "ring": count / ring(count, nbytes, lambda worker: 0.0, network, steps=1).gradients,
        }
        rows.append(
            {
                "workers": count,
                "server link (MB)": count * nbytes / 1e6,
                "ring links (MB)": 2 * (count - 1) / count * nbytes / 1e6,
                "server (s)": seconds["server"],
                "ring (s)": seconds["ring"],
                "server / ring": seconds["server"] / seconds["ring"],
            }
        )
    return rows


def straggling(
    workers: int, nbytes: int, seconds: float, slow: Sequence[float], jitter: float, bounds: Sequence[int], net: Network
) -> list[dict[str, Any]]:
    """Return gradients per second relative to the ring, with staleness in parentheses, for each factor in `slow`."""
    rows = []
    for factor in slow:
        wait = ring(workers, nbytes, computing(seconds, factor, jitter), net)
        row: dict[str, object] = {"worker 0 slower by": factor, "ring (gradients/s)": wait.gradients}
        for name, bound in {"sync": 0, **{f"bounded {s}": s for s in bounds}, "async": None}.items():
            pace = parameter_server(workers, nbytes, computing(seconds, factor, jitter), net, bound)
            row[name] = f"{pace.gradients / wait.gradients:.2f} ({pace.staleness:.1f})"
        rows.append(row)
    return rows


def _numbers(kind: type[int | float]) -> Callable[[str], list[Any]]:
    def parse(text: str) -> list[Any]:
        try:
            return [kind(each) for each in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a comma-separated list of numbers") from None

    return parse


def main(argv: Sequence[str]) -> None:
    """Print both tables."""
    parser = Parser(prog="python -m pycoll.simulate.parameter_server", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "-n", "--workers", type=_numbers(int), default="4,8,16,32", help="numbers of workers (%(default)s)"
    )
    parser.add_argument("-b", "--nbytes", type=nbytes, default="100M", help="size of the gradients (%(default)s)")
    parser.add_argument("--compute", type=float, default=0.1, help="seconds of computation in a step (%(default)s)")
    parser.add_argument(
        "--slow", type=_numbers(float), default="1,1.5,2,4,8", help="factors by which worker 0 is slower (%(default)s)"
    )
    parser.add_argument(
        "--jitter", type=float, default=0.0, help="mean random fraction added to each step (%(default)s)"
    )
    parser.add_argument("--bounds", type=_numbers(int), default="1,4", help="bounds of staleness (%(default)s)")
    parser.add_argument("--network", type=Path, metavar="FILE", help="file of `python -m pycoll.simulate --calibrate`")
    options = parser.parse_args(argv)
    try:
        network = read(options.network) if options.network else Network()
        for name, least in {"workers": 2, "nbytes": 1, "compute": 1e-9, "slow": 1e-3, "jitter": 0, "bounds": 0}.items():
            given = getattr(options, name)
            for number in given if isinstance(given, list) else [given]:
                if not least <= number < math.inf:
                    raise ValueError(f"--{name} {number}: not a finite number of at least {least}")
    except (ValueError, OSError) as error:
        parser.error(in_words(error))
    print("Seconds of communication in a step, with one server\n")
    print(tabulate(growing(options.workers, options.nbytes, network), "keys", floatfmt=".4g"))
    for workers in options.workers:
        print(f"\n{workers} workers, steps of {options.compute} s, jitter {options.jitter}: gradients per second")
        print("relative to the ring (in parentheses: staleness in steps, or in updates for async)\n")
        rows = straggling(
            workers, options.nbytes, options.compute, options.slow, options.jitter, options.bounds, network
        )
        print(tabulate(rows, "keys", floatfmt=".4g"))


if __name__ == "__main__":
    main(sys.argv[1:])

"""A parameter server against ring all-reduce, with numbers: ``python -m pycoll.simulate.training``.

First what a step costs as workers grow: the server's link carries p*Z each way, a link of the ring 2(p-1)/p*Z.  Then
what stragglers do to it: who waits for the slowest worker, who goes on without it, and how old the parameters are that
gradients are computed from.
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

from ..base.command_line import Parser, optional
from ..tune.options import nbytes
from . import simulate
from .network import Network, read
from .ports import Port

COMPUTED, PUSHED, PULLED = range(3)
Compute = Callable[[int], float]  # seconds that a worker's next step takes


class Pace(NamedTuple):
    """The speed of training."""

    gradients: float  # applied in a second, of all workers
    staleness: float  # mean number of steps (async: of updates) by which the parameters of a step were behind
    server: float  # share of the time in which the busier direction of the server's link was busy


class _Server:
    """One parameter server on a host of its own, and workers on theirs.

    With a `bound`, step n begins with the updates through step n-1-bound, each of all workers' gradients; without one
    each gradient is an update, and a step begins with at most one push unanswered: `pycoll.parallel.ParameterServer`'s
    modes.  Unlike that, the server takes gradients as they come, whichever worker's they are.  What takes time is its
    own link, its combining, and the workers' computing; not their links, nor the optimizer.
    """

    def __init__(self, workers: int, nbytes: int, bound: int | None, network: Network, compute: Compute) -> None:
        self.workers, self.nbytes, self.bound = workers, nbytes, bound
        self.network, self.compute = network, compute
        beta = network.between.beta
        self.incoming, self.outgoing = Port("server in", beta), Port("server out", beta)
        self.events: list[tuple[float, int, int, int]] = []  # time, what, worker, and of which step or update
        self.processor = 0.0
        self.begun = [0] * workers  # steps
        self.pushed = [0] * workers  # gradients that the server has
        self.answers = [0] * workers
        self.known = [0] * workers  # updates in a worker's parameters
        self.basis: dict[tuple[int, int], int] = {}  # and in those that a step began with
        self.waits = [False] * workers  # for an answer, before the next step
        self.updates = self.applied = 0
        self.behind: list[int] = []

    def run(self, gradients: int) -> Pace:
        """Until so many gradients are applied."""
        now = 0.0
        for worker in range(self.workers):
            self.begin(worker, now)
        while self.applied < gradients:
            now, what, worker, number = heappop(self.events)
            (self.computed, self.arrived, self.answered)[what](worker, number, now)
        busy = max(self.incoming.busy, self.outgoing.busy)
        return Pace(self.applied / now, float(np.mean(self.behind)), min(1.0, busy / now))

    def begin(self, worker: int, now: float) -> None:
        """The next step begins, unless the worker has to wait for an answer first."""
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
        """Gradients or parameters go to the server, or from it."""
        port.take(self.nbytes, now)
        heappush(self.events, (port.free + self.network.between.alpha, what, worker, number))

    def computed(self, worker: int, step: int, now: float) -> None:
        """A worker pushes, and continues."""
        self.pass_port(self.incoming, now, PUSHED, worker, step)
        self.begin(worker, now)

    def arrived(self, worker: int, step: int, now: float) -> None:
        """The server has a gradient."""
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
        """A worker has the parameters with so many updates."""
        self.known[worker] = updates
        self.answers[worker] += 1
        if self.waits[worker]:
            self.begin(worker, now)


def parameter_server(
    workers: int, nbytes: int, compute: Compute, network: Network, bound: int | None = 0, steps: int = 100
) -> Pace:
    """Training with one server: `bound` 0 is synchronous, None asynchronous; `steps` of each worker on average."""
    return _Server(workers, nbytes, bound, network, compute).run(workers * steps)


def ring(workers: int, nbytes: int, compute: Compute, network: Network, steps: int = 100) -> Pace:
    """Training with a ring all-reduce after each step; all wait for the slowest."""
    seconds = simulate("allreduce", algorithm="ring", ranks=workers, nbytes=nbytes, network=network).time
    slowest = np.mean([max(map(compute, range(workers))) for _ in range(steps)])
    return Pace(workers / (float(slowest) + seconds), 0.0, 0.0)


def computing(seconds: float, slow: float, jitter: float, seed: int = 0) -> Compute:
    """Steps of so many seconds, `slow` times as many for worker 0, each longer by a random share (exponential)."""
    random = np.random.default_rng(seed)

    def compute(worker: int) -> float:
        return seconds * (slow if worker == 0 else 1.0) * (1 + random.exponential(jitter) if jitter else 1.0)

    return compute


def growing(workers: Sequence[int], nbytes: int, network: Network) -> list[dict[str, Any]]:
    """The communication time of a step by either method."""
    rows = []
    for count in workers:
        seconds = {
            "server": count / parameter_server(count, nbytes, lambda worker: 0.0, network, steps=20).gradients,
            "ring": count / ring(count, nbytes, lambda worker: 0.0, network, steps=1).gradients,
        }
        rows.append(
            {
                "workers": count,
                "server's link (MB)": count * nbytes / 1e6,
                "ring's links (MB)": 2 * (count - 1) / count * nbytes / 1e6,
                "server (s)": seconds["server"],
                "ring (s)": seconds["ring"],
                "server / ring": seconds["server"] / seconds["ring"],
            }
        )
    return rows


def straggling(
    workers: int, nbytes: int, seconds: float, slow: Sequence[float], jitter: float, bounds: Sequence[int], net: Network
) -> list[dict[str, Any]]:
    """Gradients a second, as a multiple of the ring's, and in brackets how stale, for each slowness of worker 0."""
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
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers with commas between") from None

    return parse


def main(argv: Sequence[str]) -> None:
    """Print both tables."""
    tabulate = optional("tabulate").tabulate
    parser = Parser(prog="python -m pycoll.simulate.training", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "-n", "--workers", type=_numbers(int), default="4,8,16,32", help="numbers of workers (%(default)s)"
    )
    parser.add_argument("-b", "--nbytes", type=nbytes, default="100M", help="bytes of the gradients (%(default)s)")
    parser.add_argument("--compute", type=float, default=0.1, help="seconds of computation in a step (%(default)s)")
    parser.add_argument(
        "--slow", type=_numbers(float), default="1,1.5,2,4,8", help="factors by which worker 0 is slower (%(default)s)"
    )
    parser.add_argument("--jitter", type=float, default=0.0, help="mean random share added to each step (%(default)s)")
    parser.add_argument("--bounds", type=_numbers(int), default="1,4", help="bounds of staleness (%(default)s)")
    parser.add_argument("--network", type=Path, metavar="FILE", help="file of `python -m pycoll.simulate --calibrate`")
    options = parser.parse_args(argv)
    try:
        network = read(options.network) if options.network else Network()
        for name, least in {"workers": 2, "nbytes": 1, "compute": 1e-9, "slow": 1e-3, "jitter": 0, "bounds": 0}.items():
            given = getattr(options, name)
            for number in given if isinstance(given, list) else [given]:
                if not least <= number < math.inf:
                    raise ValueError(f"--{name} {number}: not a finite number from {least} on")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print("Seconds of communication in a step, one server\n")
    print(tabulate(growing(options.workers, options.nbytes, network), "keys", floatfmt=".4g"))
    for workers in options.workers:
        print(f"\n{workers} workers, steps of {options.compute} s, jitter {options.jitter}: gradients a second as")
        print("multiples of the ring's (in brackets: how many steps, or with async updates, stale)\n")
        rows = straggling(
            workers, options.nbytes, options.compute, options.slow, options.jitter, options.bounds, network
        )
        print(tabulate(rows, "keys", floatfmt=".4g"))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measure a point (a primitive at a size); return a record for each algorithm and for the native MPI collective."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.runtime.gpu.cuda_aware import facts
from pycoll.schedule.costs import busbw_factor
from pycoll.schedule.registry import NATIVE
from pycoll.tune.benchmark_case import IN_PLACE, Call, Case
from pycoll.tune.timing import alternate, ratio

from . import limit
from .curves import comparable
from .options import SPECIAL, names_of

MPIS = "mpi"  # the native MPI collective, called without pycoll
LIMIT = "limit"  # the copy limit, see `pycoll.bench.limit`
PLAIN = "plain"  # the plain sum of pycoll, beside exact sums
STAGED = "staged"  # the native MPI collective on buffers in GPU memory, staged through host memory


class Measurement(NamedTuple):
    """A primitive, a size, and in place or not; the calls of a point are timed alternately."""

    primitive: str
    nbytes: int
    in_place: bool


def points(options: argparse.Namespace) -> list[Measurement]:
    """Return the points selected by the options, grouped by primitive."""
    found = []
    for primitive in options.primitives:
        if not names_of(primitive, options.algorithm):
            continue
        for size in options.sizes if primitive != "barrier" else [0]:
            found.append(Measurement(primitive, size, False))
            if options.inplace and primitive in IN_PLACE:
                found.append(Measurement(primitive, size, True))
    return found


def measure(comm: MPI.Intracomm, point: Measurement, options: argparse.Namespace, xp: Any, budget: float) -> list[dict]:
    """Return the records of one point; values that were not measured are None."""
    what = point.primitive, point.nbytes, options.datatype, point.in_place, options.op, options.root
    case = Case(comm, *what, xp, "same" if options.form == "persistent" else options.arguments, options.registered)
    yardsticks = _yardsticks(case, options.form, xp)
    usable = [*pycoll.attach(comm).facts.algorithms_for(point.primitive), *SPECIAL, *options.algorithm]
    names = [name for name in names_of(point.primitive, options.algorithm) if name in usable]
    if not case.call_native() or xp is not np:  # MPI has no such datatype, or does not accept these buffers
        names = [name for name in names if name != NATIVE]
    ways = yardsticks | {name: _call(case, None if name == "auto" else name, options.form) for name in names}
    records = {name: _record(case, name, options) for name in ways}
    reference = next(reversed(yardsticks.values()), case.call_naive)
    for name in names:
        if options.check or options.validate_only:
            records[name]["wrong"] = case.wrong(ways[name](), reference())
        if xp is not np:
            with pycoll.traffic() as sent:
                ways[name]()()
            records[name]["copied"] = sent.staged  # bytes that this rank copied between GPU and host
    if options.validate_only:
        case.free()
        return [records[name] for name in names]
    case.zero()
    calls = {name: way() for name, way in ways.items()}
    if options.registered and point.primitive in limit.MEASURED:
        calls[LIMIT] = limit.call(case)
    if case.op == "exact_sum" and case.shape.reduces:
        plain = copy.copy(case)  # with the same buffers
        plain.op = "sum"
        calls[PLAIN] = plain.call(None, options.form)
    _time(comm, calls, records, options, budget)
    if options.form == "nonblocking":
        _overlap(comm, ways, records, options, budget)
    case.free()
    if "best" in options.algorithm and "all" not in options.algorithm:  # never hide a wrong algorithm
        right = [name for name in names if not records[name]["wrong"]]
        best = min(right or names, key=lambda name: comparable(records[name]))
        names = [name for name in names if name == best or name in options.algorithm or records[name]["wrong"]]
    return [record for name, record in records.items() if name in names or name in yardsticks]


Way = Callable[..., Call]  # makes a call; its optional argument is work to do between start and wait


def _call(case: Case, algorithm: str | None, form: str) -> Way:
    return lambda between=None: case.call(algorithm, form, between=between)


def _yardsticks(case: Case, form: str, xp: Any) -> dict[str, Way]:
    """Return the reference calls available for this case, with which the algorithms of pycoll are compared."""
    ways: dict[str, Way] = {}
    aware = xp is np or facts().says  # a CUDA-aware UCX does not make the MPI collectives CUDA-aware
    if aware and case.call_native(form):
        ways[MPIS] = lambda between=None: case.call_native(form, between=between)
    if xp is not np and case.primitive != "barrier" and form == "blocking":
        ways[STAGED] = case.call_staged
    return ways


def _record(case: Case, name: str, options: argparse.Namespace) -> dict:
    return {
        "primitive": case.primitive,
        "algorithm": name,
        "place": "in" if case.in_place else "out",
        "form": options.form,
        "arguments": options.arguments,
        "registered": options.registered,
        "bytes": case.nbytes,
        "count": case.count,
        "datatype": case.dtype.name,
        "op": case.op if case.shape.reduces else None,
        "root": case.root if case.shape.rooted else None,
        **dict.fromkeys(("iterations", "min", "median", "p99", "algbw", "busbw", "native", "staged", "ratio", "limit")),
        **dict.fromkeys(("plain", "overlap", "copied", "wrong")),
    }


def _time(
    comm: MPI.Intracomm, calls: dict[str, Call], records: dict[str, dict], options: argparse.Namespace, budget: float
) -> None:
    """Time the calls, and write times in microseconds and bandwidths in GB/s to the records."""
    times = alternate(comm, calls, budget, options.iters, options.warmup_iters)
    medians = {name: float(np.median(seconds)) * 1e6 for name, seconds in times.items()}
    yardstick, copying, plain = times.get(MPIS, times.get(STAGED)), times.pop(LIMIT, None), times.pop(PLAIN, None)
    for name, seconds in times.items():
        record, median = records[name], medians[name]
        algbw = record["bytes"] / median / 1e3
        record |= {
            "iterations": len(seconds),
            "min": float(seconds.min()) * 1e6,
            "median": median,
            "p99": float(np.percentile(seconds, 99)) * 1e6,
            "algbw": algbw,
            "busbw": algbw * busbw_factor(record["primitive"], comm.size),
            "native": medians.get(MPIS),
            "staged": medians.get(STAGED),
            "ratio": None if yardstick is None else ratio(yardstick, seconds),
            "limit": None if copying is None else ratio(seconds, copying),
            "plain": None if plain is None else ratio(seconds, plain),
        }


def _overlap(
    comm: MPI.Intracomm, ways: dict[str, Way], records: dict[str, dict], options: argparse.Namespace, budget: float
) -> None:
    """Measure how much of each collective overlaps with computation, as in the OSU benchmarks.

    The program computes for as long as the collective takes, and calls neither pycoll nor MPI meanwhile.  The overlap
    in the records is 100 (1 - (total - computing) / pure), limited to 0..100.  `pure` is the time to start and wait
    with nothing in between.
    """
    work = {name: _work(comm, records[name]["median"] * 1e-6) for name in ways}
    calls = {f"{name} computing": work[name] for name in ways}
    calls |= {name: way(work[name]) for name, way in ways.items()}
    times = alternate(comm, calls, budget, options.iters, options.warmup_iters)
    for name in ways:
        total, computing = (float(np.median(times[key])) * 1e6 for key in (name, f"{name} computing"))
        overlap = 100 * (1 - (total - computing) / records[name]["median"])
        records[name]["overlap"] = float(np.clip(overlap, 0, 100))


def _work(comm: MPI.Intracomm, seconds: float) -> Call:
    """Return a call that computes for about this many seconds if nothing else runs."""
    array = np.ones(128)
    scale = 1.0000001

    def multiply(times: int) -> None:
        for _ in range(times):
            np.multiply(array, scale, array)

    once = float(np.median(alternate(comm, {"work": lambda: multiply(1000)}, 0.1)["work"])) / 1000
    times = max(1, round(seconds / once))
    return lambda: multiply(times)

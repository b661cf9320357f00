"""Measure which algorithms are the fastest on this machine: ``mpiexec -n 4 python -m pycoll.tune``.

The results are for this MPI library, number of ranks and number of hosts.  They are added to the tuning file, which
pycoll then uses.  Run it with each number of ranks that you use, and with nothing else on the machine.
"""

from __future__ import annotations

from ..base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pycoll
from pycoll.arguments.ops import resolve
from pycoll.base.files import write_json
from pycoll.compiler.registered import has_registered_programs
from pycoll.runtime import native
from pycoll.runtime.attach import attach
from pycoll.runtime.slots import serves
from pycoll.schedule.registry import NATIVE, PRIMITIVES
from pycoll.selection import tuning_file
from pycoll.selection.rules import choose
from pycoll.selection.select import BY_MEASUREMENT, registered_limit
from pycoll.selection.tuning_file import SHARED_MEMORY, Candidate, FixedChoice, Tuned, TuningFile

from ..base.command_line import Parser, check_folder, in_words, printed_once, refuse, say_written
from ..base.links import SUFFIX
from .benchmark_case import MEASURED, Call, Case
from .environment import environment
from .export.command import LIBRARIES, PROG, export
from .links import measure_links
from .options import add_budget, add_primitives, add_sizes, points, sizes
from .timing import alternate, comparable, paced, race, ratio, updated

NATIVE_HINT = """\
native is the collective of MPI. While it blocks, nonblocking collectives on other communicators make no progress. Use
--no-native for a program in which one rank waits for a nonblocking collective before a blocking collective, and another
rank waits for it after that collective."""
PASSES = 3  # over all points, because the speed of a machine varies from minute to minute
SEGMENTS = (64 << 10, 256 << 10, 1 << 20)  # tried in addition to the default
NETWORK_SEGMENTS = (16 << 10, 32 << 10, 64 << 10, 128 << 10)  # between hosts
LONG = 128 << 10  # bytes of the shortest vector for which segments matter
CLOSE = 1.5  # algorithms within this factor of the fastest time are also tried with other segments
REGISTERED = "registered"  # the name of the times on registered buffers
SHARE = 0.1  # the share of the time of a point that they get


def parse(argv: list[str], ranks: int) -> argparse.Namespace:
    """Read the command line for this number of ranks; errors exit the program."""
    parser = Parser(prog=PROG, description=__doc__)
    add_primitives(parser, MEASURED)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help=f"the tuning file ({tuning_file.default_path()})"
    )
    add_sizes(parser, "8", "64M", 2)
    parser.add_argument(
        "--export",
        choices=("mpich", "ompi"),
        help="measure the algorithms of the MPI library instead, and write rules that it reads for C and Fortran "
        "programs, too; --output names their directory (rules)",
    )
    parser.add_argument(
        "--links",
        action="store_true",
        help="measure the latency and the bandwidth between all pairs of ranks instead, and write them for --topology "
        "of pycoll.synthesize and pycoll.simulate (links.json)",
    )
    parser.add_argument("--no-native", action="store_true", help="leave out the native collectives of MPI")
    parser.add_argument("--no-registered", action="store_true", help="leave out registered buffers")
    add_budget(parser, 300.0)
    options = parser.parse_args(argv)
    if ranks == 1:
        parser.error(f"one rank sends no messages; start several ranks: mpiexec -n 4 {PROG}")
    if options.links:
        if options.primitives or options.export:
            parser.error(f"--links cannot be combined with {'--export' if options.export else 'a primitive'}")
        options.output = options.output or Path("links.json")
        try:
            check_folder("-o", options.output, SUFFIX)  # as the name of a topology does
        except ValueError as error:
            parser.error(str(error))
    if options.export:
        check_export(parser, options)
    options.primitives = options.primitives or MEASURED
    try:
        options.sizes = sizes(options.minbytes, options.maxbytes, options.stepfactor)
    except ValueError as error:
        parser.error(str(error))
    options.output = options.output or tuning_file.path_in_use() or tuning_file.default_path()
    if options.output.parts[0] == "~":
        parser.error("there is no home directory: name the tuning file with --output")
    return options


def check_export(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Set the defaults for --export; options and primitives that have no meaning with it exit the program."""
    for name in ("native", "registered"):
        if getattr(options, f"no_{name}"):
            parser.error(f"--no-{name} has no meaning with --export")
    known = LIBRARIES[options.export][1].primitives
    for name in options.primitives:
        if name not in known:
            parser.error(f"--export {options.export}: the files cannot select an algorithm for {name} by its size")
    options.primitives = options.primitives or [name for name in MEASURED if name in known]
    options.output = options.output or Path("rules")


class Tuner:
    """Measures the points of one communicator."""

    def __init__(self, comm: MPI.Intracomm, with_native: bool = True, with_registered: bool = True) -> None:
        self.comm, self.channel, self.with_native = comm, attach(comm), with_native
        # another communicator, because calls on ordinary memory take longer where there is registered memory
        self.registering = comm.Dup() if with_registered and self.channel.facts.host_count == 1 else None
        self.segments = NETWORK_SEGMENTS if self.channel.facts.host_count > 1 else SEGMENTS
        self._tried: dict[tuple[str, int], list[Candidate]] = {}  # candidates with other segments, for all passes

    def seconds(self, primitive: str, size: int, budget: float) -> tuple[int, dict[str, float]]:
        """Measure one point; return the bytes by which an algorithm is chosen, and the time of each candidate.

        If registered buffers can be used, their time is there too.
        """
        case = Case(self.comm, primitive, size)
        case.zero()
        operation = resolve(case.op) if case.shape.reduces else None
        in_slots = serves(self.channel, primitive, case.dtype, operation)
        others = [NATIVE] * self.with_native + [SHARED_MEMORY] * in_slots
        known = {name: Candidate(name) for name in [*self.channel.facts.algorithms_for(primitive), *others]}
        long = size >= LONG and primitive != "barrier"
        found = self._race(case, list(known.values()), budget / 2 if long else budget)
        if long:
            best = min(found.values())
            close = [one for name, one in known.items() if found[name] <= CLOSE * best]
            if (primitive, size) not in self._tried:
                self._tried[primitive, size] = self._in_segments(close, found, size)
            if tried := self._tried[primitive, size]:
                found = updated(found, self._race(case, [*close, *tried], budget / 2))
        if self.registering and has_registered_programs(case.shape):
            registered = Case(self.registering, primitive, size, registered=True)
            if registered.shared:
                found[REGISTERED] = self._on_registered(case, registered, found, SHARE * budget)
            registered.free()
        return case.chosen_by, found

    def _on_registered(self, case: Case, registered: Case, found: dict[str, float], budget: float) -> float:
        """Return the time on registered buffers, with the algorithm of the rules; all take about the same time.

        It is measured in turn with the fastest candidate, and is relative to the time of that one in `found`.
        """
        best = min(found, key=found.__getitem__)
        rule = Candidate(choose(case.primitive, case.chosen_by, self.comm.size))
        attach(registered.comm).tuned = FixedChoice(rule)
        registered.zero()
        calls = {best: case.call(None), REGISTERED: registered.call(None)}
        with self._tuned_restored():
            self._first(calls[best], Candidate.parse(best))()
            times = alternate(self.comm, calls, budget)
        return found[best] * ratio(times[REGISTERED], times[best])

    def _in_segments(self, close: list[Candidate], found: dict[str, float], size: int) -> list[Candidate]:
        """Return the two best algorithms of pycoll with each length of segments."""
        ours = [one for one in close if one.algorithm not in (NATIVE, SHARED_MEMORY)]
        ours = sorted(ours, key=lambda one: found[str(one)])[:2]
        return [one._replace(segment=segment) for one in ours for segment in self.segments if segment < size]

    def _race(self, case: Case, candidates: list[Candidate], budget: float) -> dict[str, float]:
        calls = {str(one): case.call(None) for one in candidates}
        with self._tuned_restored():
            return race(self.comm, calls, budget, {str(one): self._first(calls[str(one)], one) for one in candidates})

    @contextlib.contextmanager
    def _tuned_restored(self) -> Iterator[None]:
        tuned = self.channel.tuned
        try:
            yield
        finally:
            self.channel.tuned = tuned

    def _first(self, call: Call, candidate: Candidate) -> Call:
        """Return the call with this candidate, as if a tuning file named it; later calls use the same candidate."""
        channel, only = self.channel, FixedChoice(candidate)

        def choose_and_call() -> None:
            channel.tuned = only
            channel.forget_plans()
            call()

        return choose_and_call


def measured(comm: MPI.Intracomm, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Measure all points; return them by primitive."""
    tuner = Tuner(comm, not options.no_native, not options.no_registered)
    todo = points(options.primitives, options.sizes) * PASSES
    times: dict[tuple[str, int], list[dict[str, float]]] = {}
    for number, ((primitive, size), budget) in enumerate(paced(comm, todo, options.budget, "tuning")):
        if budget == 0 and number >= len(todo) // PASSES:
            continue  # the time is up, and the first pass is complete
        chosen_by, seconds = tuner.seconds(primitive, size, budget)
        # sizes below one element for each rank are the same point
        times.setdefault((primitive, chosen_by), []).append(seconds)
    found: dict[str, list[dict[str, Any]]] = {}
    for (primitive, chosen_by), passes in times.items():
        seconds = joined(passes)
        registered = {name: seconds.pop(name) for name in [REGISTERED] if name in seconds}
        found.setdefault(primitive, []).append({"nbytes": chosen_by, "seconds": seconds, **registered})
    return found


def joined(passes: list[dict[str, float]]) -> dict[str, float]:
    """Return comparable times, over all passes, of the candidates that every pass has measured."""
    names = [name for name in passes[0] if all(name in one for one in passes)]
    return comparable({name: [one[name] for one in passes] for name in names})


def existing(path: Path) -> TuningFile:
    """Read the file, or return one without measurements; raise InvalidTuningFile if it is not a tuning file."""
    return tuning_file.read(path) if path.exists() else tuning_file.empty(path)


def disturbing(primitives: list[str]) -> str | None:
    """Return an error if environment variables would change what is measured; None if there are none."""
    names = [f"PYCOLL_{name.upper()}" for name in (*primitives, "segment", "pipeline", "check", "timeout")]
    found = [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]
    return f"unset {', '.join(found)} to tune" if found else None


def main(argv: list[str]) -> None:
    """Measure, and add the results to the tuning file."""
    comm = MPI.COMM_WORLD
    pycoll.abort_on_exception()
    with printed_once(comm):
        options = parse(argv, comm.size)
    if options.export:
        export(comm, options)
        return
    if options.links:
        measure_links(comm, options.output)
        return
    problem = None
    if comm.rank == 0:
        try:  # before the measurement
            existing(options.output)
            options.output.parent.mkdir(parents=True, exist_ok=True)
        except (tuning_file.InvalidTuningFile, OSError) as error:
            problem = f"-o {options.output}: {in_words(error)}; name another file"
    if not problem and comm.rank == 0 and not os.access(options.output.parent, os.W_OK):
        problem = f"-o {options.output}: the directory is not writeable"
    if problem := comm.bcast(problem or disturbing(options.primitives)):
        refuse(comm, PROG, problem)
    channel = attach(comm)
    found, where = measured(comm, options), environment(comm)
    if comm.rank == 0:
        measurement = {
            "mpi": native.library(),
            "ranks": comm.size,
            "hosts": channel.facts.host_count,
            "environment": where,
        }
        document = existing(options.output).with_measurement({**measurement, "primitives": found})
        write_json(options.output, document)
        tuned = TuningFile(options.output, document).fitting(native.library(), comm.size, channel.facts.host_count)
        print(summary(found, tuned))
        used = options.output.resolve() == (tuning_file.path_in_use() or Path()).resolve()
        if any("native" == min(p["seconds"], key=p["seconds"].get) for points in found.values() for p in points):
            print(NATIVE_HINT)
        say_written(options.output)
        if not used:
            print(f"to use it: export PYCOLL_TUNING={shlex.quote(str(options.output.absolute()))}")


def summary(found: dict[str, list[dict[str, Any]]], tuned: Tuned | None = None) -> str:
    """Return a line for each primitive with the fastest algorithms, each with the smallest size of its range.

    It also has the size from which registered buffers are used, if it was measured.
    """
    lines = []
    for primitive, measurements in found.items():
        fastest = [(point["nbytes"], min(point["seconds"], key=point["seconds"].get)) for point in measurements]
        changes = [one for one, before in zip(fastest, [(0, ""), *fastest]) if one[1] != before[1]]
        what = "the vector" if PRIMITIVES[primitive].cuts else "a block"
        limit, source = registered_limit(primitive, tuned)
        ranges = [f"{name} from {start}" for start, name in changes]
        ranges += [f"registered buffers from {limit}"] * (source == BY_MEASUREMENT)
        lines.append(f"{primitive} (bytes of {what}): " + ", ".join(ranges))
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The tuning file, which ``python -m pycoll.tune`` writes: measured times on this machine.

``PYCOLL_TUNING`` names the file (``off``: none); by default, it is in the configuration directory of the user.  It has
one measurement for each MPI library, number of ranks and number of hosts, and applies to communicators of these:

    {"format": "pycoll tuning", "version": 1, "measurements": [
      {"mpi": "MPICH Version: 5.0.2", "ranks": 4, "hosts": 1, "environment": {"date": ..., "cpu": ..., ...},
       "primitives": {"allreduce": [
         {"nbytes": 8, "seconds": {"ring": 1.1e-05, "recursive_doubling": 5e-06, "native": 4e-06}},
         {"nbytes": 1048576, "seconds": {"ring": 9e-04, "ring/262144": 8e-04, ...}, "registered": 3e-04}, ...]}}]}

`nbytes` is the size of the vector, or of the block of one rank; "ring/262144" is the ring with segments of 262144
bytes, and "shared_memory" runs in slots of the host, without messages.  `seconds` are times on ordinary memory.
`registered` is the time on registered buffers; it is missing where they were not measured.
"""

from __future__ import annotations

import math
import os
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..schedule.registry import NATIVE, PRIMITIVES, algorithms_of, find, has_algorithm

if TYPE_CHECKING:
    from pathlib import Path

FORMAT, VERSION = "pycoll tuning", 1
TINY = 64  # bytes: calls shorter than the shortest measured one take the same time, if that one is this short
SHARED_MEMORY = "shared_memory"  # the name of a call in slots, which has the schedule of the naive algorithm
AS_GOOD = 1.05  # a time up to this factor above the fastest is within the noise


class InvalidTuningFile(ValueError):
    """A tuning file that cannot be used; the message gives the reason."""


class Candidate(NamedTuple):
    """An algorithm, and the size of its segments in bytes; None for the default size."""

    algorithm: str
    segment: int | None = None

    @property
    def schedule(self) -> str:
        """The algorithm whose schedule it has."""
        return "naive" if self.algorithm == SHARED_MEMORY else self.algorithm

    def __str__(self) -> str:
        return self.algorithm if self.segment is None else f"{self.algorithm}/{self.segment}"

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """The inverse of `str`; raises ValueError for other strings."""
        name, _, segment = text.partition("/")
        if segment and not segment.isdecimal():
            raise ValueError(f"{text!r}, which is not an algorithm/segment")
        return cls(name, int(segment) if segment else None)


class Point(NamedTuple):
    """A size in bytes, and the time of each candidate for it in seconds; `registered` is that of registered buffers."""

    nbytes: int
    seconds: dict[Candidate, float]
    registered: float | None = None


Document = dict[str, Any]  # a JSON object


class Tuned:
    """A measurement that fits a communicator."""

    def __init__(self, path: Path, environment: Document, points: dict[str, list[Point]]) -> None:
        self.path, self.environment = path, environment
        self._points = points
        self.best = lru_cache(maxsize=4096)(self._best)
        self.registered_from = cache(self._registered_from)

    def times(self, primitive: str, nbytes: int) -> dict[Candidate, float]:
        """The time of each candidate in seconds, interpolated between sizes.

        Beyond the ends, up to a factor of two, the times at the ends apply.  On logarithmic scales, a time of the form
        latency + bytes / bandwidth is nearly linear between two sizes.
        """
        points = self._points.get(primitive, [])
        at = sum(point.nbytes < nbytes for point in points)
        around = points[max(at - 1, 0) : at + 1]
        if not around or len(around) == 1 or around[1].nbytes == nbytes:
            near = around and around[-1].nbytes / 2 <= nbytes <= around[-1].nbytes * 2
            tiny = around and nbytes <= around[-1].nbytes <= TINY
            return dict(around[-1].seconds) if near or tiny else {}
        low, high = around
        share = math.log(max(nbytes, 1) / max(low.nbytes, 1)) / math.log(high.nbytes / max(low.nbytes, 1))
        return {
            candidate: math.exp((1 - share) * math.log(low.seconds[candidate]) + share * math.log(seconds))
            for candidate, seconds in high.seconds.items()
            if candidate in low.seconds
        }

    def _best(
        self, primitive: str, nbytes: int, commutative: bool, native: bool, expected: str, slots: bool = False
    ) -> Candidate | None:
        """The fastest candidate that may run, or None; the one of the rules (`expected`) if it is about as fast."""
        times = {
            candidate: seconds
            for candidate, seconds in self.times(primitive, nbytes).items()
            if (native or candidate.algorithm != NATIVE)
            and (slots or candidate.algorithm != SHARED_MEMORY)
            and (commutative or find(primitive, candidate.schedule).ordered)
        }
        if not times:
            return None
        fastest = min(times, key=times.__getitem__)
        rule = Candidate(expected)
        if expected == SHARED_MEMORY and rule not in times:  # an older file
            return None
        return rule if times.get(rule, math.inf) <= AS_GOOD * times[fastest] else fastest

    def _registered_from(self, primitive: str, expected: int) -> int | None:
        """The size from which registered buffers take less time than the fastest candidate; None if not measured.

        It is the size for which the product of all times is the least; factors above two count as two, so a single
        point in the noise does not move it far.  Beyond the ends, the size of the rules (`expected`) holds.
        """
        points = [one for one in self._points.get(primitive, []) if one.registered and one.seconds]
        if not points:
            return None
        sizes = [point.nbytes for point in points]
        gains = [math.log2(min(point.seconds.values())) - math.log2(point.registered or 1) for point in points]
        gains = [max(-1.0, min(gain, 1.0)) for gain in gains]
        at = max(range(len(points) + 1), key=lambda first: sum(gains[first:]))
        if at == 0:
            return min(expected, sizes[0])
        return sizes[at] if at < len(points) else max(expected, 2 * sizes[-1])


class FixedChoice(Tuned):
    """A measurement of one candidate only, with registered buffers for calls of all sizes."""

    def __init__(self, candidate: Candidate) -> None:
        from pathlib import Path

        super().__init__(Path(), {}, {})
        self.best = lambda *kind: candidate  # type: ignore[assignment]
        self.registered_from = lambda *kind: 0  # type: ignore[assignment]


class TuningFile:
    """A tuning file that has been checked."""

    def __init__(self, path: Path, document: Document, digest: int = 0) -> None:
        self.path, self.digest = path, digest
        self._document = document

    def fitting(self, mpi: str, ranks: int, hosts: int) -> Tuned | None:
        """The measurement for this MPI library, number of ranks and number of hosts, or None."""
        for one in self._document["measurements"]:
            if (one["mpi"], one["ranks"], one["hosts"]) == (mpi, ranks, hosts):
                return Tuned(self.path, one["environment"], {n: _points(p) for n, p in one["primitives"].items()})
        return None

    def libraries(self) -> list[str]:
        """The MPI libraries that were measured."""
        return list(dict.fromkeys(one["mpi"] for one in self._document["measurements"]))

    def with_measurement(self, measurement: Document) -> Document:
        """The document with one more measurement, which replaces an older one of the same kind.

        Older sizes and primitives that it does not contain remain if they were measured in the same environment.
        """
        others = []
        for one in self._document["measurements"]:
            if any(one[key] != measurement[key] for key in ("mpi", "ranks", "hosts")):
                others.append(one)
            elif circumstances(one) == circumstances(measurement):
                measurement = {**measurement, "primitives": merged(one["primitives"], measurement["primitives"])}
        return {**self._document, "measurements": [*others, measurement]}


def merged(old: dict[str, list[Document]], new: dict[str, list[Document]]) -> dict[str, list[Document]]:
    """The points of all primitives and sizes; the new ones replace old ones of the same size."""
    found = {}
    for primitive in {**old, **new}:
        points = {point["nbytes"]: point for point in [*old.get(primitive, []), *new.get(primitive, [])]}
        found[primitive] = [points[nbytes] for nbytes in sorted(points)]
    return found


def circumstances(measurement: Document) -> Document:
    """The environment of a measurement, without what is always different."""
    return {key: value for key, value in measurement["environment"].items() if key not in ("date", "commit")}


def empty(path: Path) -> TuningFile:
    """A file without measurements."""
    return TuningFile(path, {"format": FORMAT, "version": VERSION, "measurements": []})


def default_path() -> Path:
    """The path in the configuration directory of the user; it begins with ~ if the user has no home directory."""
    from pathlib import Path

    return Path(_default_path())


def _default_path() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "pycoll", "tuning.json")


def path_in_use() -> Path | None:
    """The file to use: the one that ``PYCOLL_TUNING`` names, or the default one if it exists."""
    named = os.environ.get("PYCOLL_TUNING", "")
    if named == "off" or not (named or os.path.exists(_default_path())):
        return None
    from pathlib import Path

    return Path(named or _default_path())


def read(path: Path) -> TuningFile:
    """Read a tuning file; raises InvalidTuningFile if it does not exist, is broken, or has another version."""
    import hashlib
    import json

    try:
        content = path.read_bytes()
        document = json.loads(content)
    except OSError as error:
        raise InvalidTuningFile(f"it cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InvalidTuningFile(f"it is not JSON ({error})") from None
    except RecursionError:
        raise InvalidTuningFile("it is nested too deeply") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidTuningFile(f"it is not a tuning file: its format is not {FORMAT!r}")
    if document.get("version") != VERSION:
        raise InvalidTuningFile(f"it has version {document.get('version')!r}, this pycoll reads version {VERSION}")
    measurements = document.get("measurements")
    if not isinstance(measurements, list):
        raise InvalidTuningFile("it is broken: its measurements are not a list")
    for number, one in enumerate(measurements):
        try:
            _check(one)
        except ValueError as error:
            raise InvalidTuningFile(f"measurement {number} is broken: {error}") from None
    return TuningFile(path, document, int.from_bytes(hashlib.sha256(content).digest()[:8], "little", signed=True))


_KINDS = {str: "a string", int: "an integer", dict: "an object", list: "a list"}  # in the words of JSON


def _check(measurement: Any) -> None:
    """Raise ValueError if a measurement is wrong; the message says why."""
    _check_kind("it is", measurement, dict)
    for key, kind in (("mpi", str), ("ranks", int), ("hosts", int), ("environment", dict), ("primitives", dict)):
        if key not in measurement:
            raise ValueError(f"it has no {key!r}")
        _check_kind(f"its {key!r} is", measurement[key], kind)
    for primitive, points in measurement["primitives"].items():
        algorithms_of(primitive)  # raises ValueError for an unknown primitive
        if PRIMITIVES[primitive].varies:
            raise ValueError(f"{primitive} cannot be tuned: its sizes are not known on all ranks")
        _check_points(primitive, points)
        sizes = [point.nbytes for point in _points(points)]
        integers = all(isinstance(nbytes, int) and 0 <= nbytes < 1 << 63 for nbytes in sizes)
        if not sizes or not integers or sizes != sorted(set(sizes)):
            raise ValueError(f"the sizes of {primitive} are {sizes}, not nonnegative integers in increasing order")
        for nbytes, seconds, registered in _points(points):
            for candidate in seconds:
                segment = candidate.segment
                if not has_algorithm(primitive, candidate.schedule) or (segment is not None and segment < 1):
                    raise ValueError(f"{primitive} has no {candidate}")
            times = [(str(candidate), time) for candidate, time in seconds.items()]
            if registered is not None:
                times.append(("registered buffers", registered))
            for what, time in times:
                if not (isinstance(time, float) and 0 < time < math.inf):
                    raise ValueError(f"the time of {what} for {primitive} of {nbytes} bytes is {time!r} seconds")


def _check_points(primitive: str, points: Any) -> None:
    """Raise ValueError if `_points` cannot read them."""
    _check_kind(f"the points of {primitive} are", points, list)
    for point in points:
        _check_kind(f"a point of {primitive} is", point, dict)
        missing = [key for key in ("nbytes", "seconds") if key not in point]
        if missing:
            raise ValueError(f"a point of {primitive} has no {missing[0]!r}")
        _check_kind(f"the 'seconds' of a point of {primitive} is", point["seconds"], dict)
        for name in point["seconds"]:
            try:
                Candidate.parse(name)
            except ValueError as error:
                raise ValueError(f"a point of {primitive} has {error}") from None


def _check_kind(what: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{what} {value!r}, not {_KINDS[kind]}")


def _points(points: list[Document]) -> list[Point]:
    return [
        Point(
            point["nbytes"],
            {Candidate.parse(name): time for name, time in point["seconds"].items()},
            point.get("registered"),
        )
        for point in points
    ]

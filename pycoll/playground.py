"""The Python half of the playground, a page of the documentation that runs schedules in a browser.

It needs neither MPI nor NumPy.  All functions take and return what JSON can hold.
"""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from .base import settings
from .draw.frames import Film, film
from .draw.markup import tag, words
from .draw.names import setting
from .draw.page import described, document, introduction, player
from .draw.sheet import style
from .schedule.moves import Schedule
from .schedule.proof import ProofError, prove
from .schedule.registry import (
    PRIMITIVES,
    Algorithm,
    Hosts,
    algorithms_of,
    find_schedule,
    in_levels,
    member,
    parameters_of,
    sides,
    whole,
    without_domains,
)
from .simulate.network import Network
from .simulate.routes import Topology, check_hosts, parse
from .simulate.run import Cluster, Ranks, sizes

FILE = "<the editor>"
SIZES = range(1, 33)  # numbers of ranks for which edited algorithms are proved


def catalogue() -> dict[str, list[str]]:
    """Return the names of the algorithms of each primitive."""
    return {primitive: [*algorithms_of(primitive)] for primitive in PRIMITIVES}


def facts(primitive: str, name: str) -> dict[str, bool]:
    """Return which of the controls an algorithm depends on."""
    algorithm = find_schedule(primitive, name)
    return {
        "root": algorithm.primitive.rooted,
        "segments": algorithm.pipelined,
        "per_host": algorithm.knows_hosts,
    }


def source(primitive: str, name: str) -> str:
    """Return the source of a generator."""
    return inspect.getsource(find_schedule(primitive, name).generator)


def edited(primitive: str, name: str, text: str) -> Algorithm:
    """Return the algorithm that a text defines in place of a registered one; it can use what the file of that one uses.

    Raises
    ------
    ValueError
        If the text does not define one algorithm.
    Exception
        Whatever the text raises.
    """
    original, found = find_schedule(primitive, name), list[Algorithm]()

    def algorithm(cut: Any = whole, ordered: bool = True, **options: Any) -> Callable[[Any], Any]:
        def register(generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
            parameters, counts = parameters_of(generator), options.get("needs_counts", False)
            one = Algorithm(PRIMITIVES[primitive], generator.__name__, generator, cut, ordered, parameters, counts)
            if original.levels:
                one = in_levels(one, original.levels)
            found.append(member(one, original.k) if original.k else one)
            return generator

        return register

    names = {**original.generator.__globals__, "algorithm": algorithm}
    linecache.cache[FILE] = len(text), None, text.splitlines(keepends=True), FILE
    exec(compile(text, FILE, "exec"), names)
    if len(found) != 1:
        raise ValueError(f"the text defines {len(found)} algorithms: write one generator below @algorithm()")
    return found[0]


def check(primitive: str, name: str, text: str) -> dict[str, Any]:
    """Prove the algorithm that a text defines, for all numbers of ranks in `SIZES`; say in which line it fails."""
    try:
        algorithm = edited(primitive, name, text)
        segments = 3 if algorithm.pipelined else 1
        for size in SIZES:
            for root in {0, size - 1} if algorithm.primitive.rooted else {0}:
                for hosts in (None, _hosts(size, 2)) if algorithm.knows_hosts else (None,):
                    prove(algorithm, size, root, segments, hosts=hosts)
    except ProofError as error:
        line = _line_of(str(error), lambda rank: algorithm.schedule(rank, size, root, segments, hosts))
        return {"proved": False, "text": str(error), "line": line}
    except Exception as error:
        here = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
        said = "".join(traceback.format_exception_only(error)).strip()
        line = here[-1].lineno if here else error.lineno if isinstance(error, SyntaxError) else None
        return {"proved": False, "text": f"line {here[-1].lineno}: {said}" if here else said, "line": line}
    return {"proved": True, "text": f"Proved for {SIZES[0]} to {SIZES[-1]} ranks."}


def _line_of(error: str, schedule: Callable[[int], Any]) -> int | None:
    """Return the line that yields the first round that the error of a proof names; None if it names none."""
    found = re.search(r"rank (\d+), round (\d+)", error)
    if not found:
        return None
    rounds = schedule(int(found[1]))
    for _ in range(int(found[2])):
        next(rounds, None)
    frame = getattr(rounds, "gi_frame", None)
    return frame.f_lineno if frame else None


def topologies(ranks: int, ranks_per_host: int) -> list[str]:
    """Return some topologies that have room for the hosts of these ranks."""
    hosts = -(-ranks // ranks_per_host)
    grids = ["x".join(map(str, sides(hosts, k))) for k in (1, 2, 3) if k == 1 or sides(hosts, k)[1] > 1]
    leaves = -(-hosts // 2)
    return [
        *(f"torus:{grid}" for grid in grids),
        f"fat-tree:{leaves}x2:2",
        f"dragonfly:{leaves}x1x2",
        f"rails:{hosts}x{ranks_per_host}",
    ]


def page(
    primitive: str,
    names: Sequence[str],
    ranks: int,
    root: int = 0,
    segments: int = 2,
    ranks_per_host: int = 1,
    nbytes: int = 1 << 20,
    topology: str = "",
    text: str | None = None,
) -> str:
    """Return an HTML page that plays one algorithm, or two of them side by side.

    A `text` replaces the source of the first algorithm.  The clock is that of the simulated `topology`, see
    `pycoll.simulate.simulate`; without one, all hosts are on one switch.
    """
    algorithms = [find_schedule(primitive, name) for name in names]
    if text is not None:
        algorithms[0] = edited(primitive, names[0], text)
    films = [_film(each, ranks, root, segments, _hosts(ranks, ranks_per_host)) for each in algorithms]
    clocks = [_clock(each, nbytes, topology) for each in films]
    title = f"{' and '.join(map(str, algorithms))} on {setting(films[0])}"
    body = [tag("h1", words(title)), *(introduction(films[0]) if len(films) == 1 else []), player(films, clocks)]
    body += [(tag("h2", words(str(each.algorithm))) if len(films) > 1 else "") + described(each) for each in films]
    return document(title, "".join(body), style("player.js"))


def _film(algorithm: Algorithm, ranks: int, root: int, segments: int, hosts: Hosts) -> Film:
    return film(
        algorithm, ranks, root if algorithm.primitive.rooted else 0, segments if algorithm.pipelined else 1, hosts
    )


def _hosts(ranks: int, ranks_per_host: int) -> Hosts:
    return None if ranks_per_host == 1 else tuple(rank // ranks_per_host for rank in range(ranks))


class _Timed(Ranks):
    """A simulation that notes when each rank starts its rounds, and when it ends."""

    times: list[list[float]]

    def next_round(self, rank: int, now: float) -> None:
        self.times[rank].append(now)
        super().next_round(rank, now)


def _clock(film: Film, nbytes: int, topology: str) -> list[float]:
    """Return the simulated time at the end of each frame."""
    algorithm, size, hosts = film.algorithm, film.size, film.hosts
    links: Topology | None = parse(topology) if topology else None
    if links:
        check_hosts(topology, links, without_domains(hosts or range(size)))
    run = _Timed(
        [algorithm.schedule(rank, size, film.root, film.segments, hosts) for rank in range(size)],
        Cluster(Network(), size, hosts, links),
        sizes(algorithm, size, nbytes, film.segments, hosts),
        settings.longest(hosts is None or len(set(hosts)) > 1),
    )
    run.times = [[] for _ in range(size)]
    run.run([0.0] * size)
    ends = (max((run.times[rank][end] for rank, end in frame.ends.items()), default=0.0) for frame in film.frames)
    return list(accumulate(ends, max))

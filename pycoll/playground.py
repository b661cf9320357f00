"""The Python half of the playground, a page of the documentation that runs schedules in a browser.

It needs neither MPI nor NumPy.  All functions take and return what JSON can hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from .base import settings
from .challenges.chinese import TASKS, translated
from .challenges.edited import SIZES, Verdict, examine, read
from .challenges.tasks import CHALLENGES, judge, read_challenge
from .draw.frames import Film, film
from .draw.language import say, speaking
from .draw.markup import tag, words
from .draw.names import setting
from .draw.page import described, document, introduction, player, scripts
from .draw.wait_for_graph import waiting
from .schedule.cuts import sides
from .schedule.hosts import Hosts, in_order, without_domains
from .schedule.proof import ProofError
from .schedule.registry import PRIMITIVES, Algorithm, algorithms_of, find_schedule, in_levels, member
from .simulate.network import Network
from .simulate.run import Cluster, Ranks, sizes
from .simulate.topologies import Topology
from .simulate.topology_names import check_hosts, parse


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
    """Return the algorithm that a text defines instead of a registered one; it can use what the file of that one uses.

    See `pycoll.challenges.edited.read` for the errors.
    """
    original = find_schedule(primitive, name)

    def adapt(found: Algorithm) -> Algorithm:
        if original.levels:
            found = in_levels(found, original.levels)
        return member(found, original.k) if original.k else found

    return read(primitive, text, original.generator.__globals__, adapt)


def check(primitive: str, name: str, text: str, language: str = "en") -> dict[str, Any]:
    """Prove the algorithm that a text defines; say in which line it fails, and draw the ranks that wait forever."""
    return _drawn(examine(lambda: edited(primitive, name, text)), language)


def _drawn(verdict: Verdict, language: str) -> dict[str, Any]:
    """Return a verdict with a picture instead of the waiting ranks, which is empty if there are none."""
    with speaking(language):
        text = say("proved", first=SIZES[0], last=SIZES[-1]) if verdict.proved else _spoken(verdict.text, language)
        picture = waiting(verdict.waiting) if verdict.waiting else ""
    return verdict._asdict() | {"text": text, "waiting": picture}


def _spoken(text: str, language: str) -> str:
    """Return an error in a language."""
    return translated(text) if language == "zh-CN" else text


def challenges(language: str = "en") -> list[dict[str, Any]]:
    """Return the challenges: their names, primitives, tasks and texts."""
    tasks = {"zh-CN": TASKS}.get(language, {})
    found = (each._replace(goal=None, task=tasks.get(each.name, each.task)) for each in CHALLENGES.values())
    return [each._asdict() for each in found]


def judged(name: str, text: str, language: str = "en") -> dict[str, Any]:
    """Return whether a text solves a challenge, and if not, in which line it fails, and which ranks wait forever."""
    return _drawn(judge(name, text), language)


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
    challenge: str = "",
    gif: str = "",
    language: str = "en",
) -> str:
    """Return an HTML page that plays one algorithm, or two of them side by side.

    A `text` replaces the source of the first algorithm, or of the challenge.  The clock comes from a simulation on the
    `topology`, see `pycoll.simulate.simulate`; without one, all hosts are on one switch.  `gif` is the address of
    the GIF encoder, see `pycoll.draw.page.scripts`; `language` is one of `pycoll.draw.language.LANGUAGES`.
    """
    algorithms = [find_schedule(primitive, name) for name in names]
    if challenge:
        algorithms = [read_challenge(challenge, text or "")]
    elif text is not None:
        algorithms[0] = edited(primitive, names[0], text)
    try:
        films = [_film(each, ranks, root, segments, in_order(ranks, ranks_per_host)) for each in algorithms]
        clocks = [_clock(each, nbytes, topology) for each in films]
    except (ProofError, ValueError) as error:
        raise ValueError(_spoken(str(error), language)) from error
    with speaking(language):
        return _page(films, clocks, gif)


def _page(films: list[Film], clocks: list[list[float]], gif: str) -> str:
    title = say("on", algorithm=say("and").join(str(each.algorithm) for each in films), setting=setting(films[0]))
    body = [tag("h1", words(title)), *(introduction(films[0]) if len(films) == 1 else []), player(films, clocks)]
    body += [(tag("h2", words(str(each.algorithm))) if len(films) > 1 else "") + described(each) for each in films]
    return document(title, "".join(body), scripts(gif))


def _film(algorithm: Algorithm, ranks: int, root: int, segments: int, hosts: Hosts) -> Film:
    return film(
        algorithm, ranks, root if algorithm.primitive.rooted else 0, segments if algorithm.pipelined else 1, hosts
    )


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
        settings.longest(hosts is None or len(set(hosts)) > 1, algorithm.primitive.reduces),
    )
    run.times = [[] for _ in range(size)]
    run.run([0.0] * size)
    ends = (max((run.times[rank][end] for rank, end in frame.ends.items()), default=0.0) for frame in film.frames)
    return list(accumulate(ends, max))

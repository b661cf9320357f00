"""The guide: a static site with all primitives and algorithms, and pages that compare some of them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..schedule.costs import documented, evaluate
from ..schedule.cuts import sides
from ..schedule.hosts import Hosts
from ..schedule.neighborhood import Neighborhood, corners, neighborhood
from ..schedule.registry import COLLECTIVES, PRIMITIVES, Algorithm, algorithms_of, find
from .frames import Film, film
from .language import say
from .markup import rows, tag, words
from .names import busiest, cost, summary
from .names import title as film_title
from .page import described, document, introduction, loads, player, scripts, scroll
from .sheet import sheet, steps


class Setting(NamedTuple):
    """The parameters of all drawings: number of ranks, root, segments, and the host of each rank (None: two halves).

    The neighborhood of collectives between neighbors is, by default, a grid of two dimensions with corners.
    """

    size: int = 4
    root: int = 0
    segments: int = 2
    hosts: Hosts = None
    neighborhood: Neighborhood | None = None

    def case(self, algorithm: Algorithm) -> tuple[int, int, int, Hosts]:
        """Return the number of ranks, and the root, segments and hosts if the algorithm depends on them."""
        root = self.root if algorithm.primitive.rooted else 0
        hosts = self.hosts or halves(self.size) if algorithm.knows_hosts else self.hosts
        return self.size, root, self.segments if algorithm.pipelined else 1, hosts

    def film(self, algorithm: Algorithm) -> Film:
        """Make the film of an algorithm."""
        near = self.neighborhood
        if algorithm.primitive.near and near is None:
            near = neighborhood(dims=sides(self.size, 2), periods=self.size == 1, offsets=corners(2))
        return film(algorithm, *self.case(algorithm), near)


def halves(size: int) -> tuple[int, ...]:
    """Split the ranks between two hosts, as evenly as possible."""
    return tuple(int(rank >= (size + 1) // 2) for rank in range(size))


class Comparison(NamedTuple):
    """A page that compares some algorithms."""

    file: str
    title: str
    text: str
    algorithms: Sequence[tuple[str, str]]


COMPARISONS = [
    Comparison(
        "compare-allreduce.html",
        "One all-reduce, three ways: parameter server, ring, tree",
        "All three compute the same sums.  A parameter server (naive) is simple, but all vectors go through the link "
        "of rank 0, so its bytes grow with the number of ranks.  A tree needs far fewer steps, each with a whole "
        "vector.  A ring cuts the vector, so that all links are busy in every step.  No rank sends more than twice the "
        "vector, for any number of ranks, but there are as many steps as with the server.",
        [("allreduce", "naive"), ("allreduce", "ring"), ("allreduce", "tree")],
    ),
    Comparison(
        "compare-scatter-bcast.html",
        "Scatter against broadcast",
        "Both use the same tree.  A broadcast forwards the whole vector, so that every rank gets all of it.  A scatter "
        "forwards only the blocks of the subtree, half as many in each step.",
        [("bcast", "tree"), ("scatter", "tree")],
    ),
    Comparison(
        "compare-allgather-alltoall.html",
        "All-gather against all-to-all",
        "In an all-gather each rank has one block, and all ranks get it.  So a rank in a ring can forward the block "
        "that it has just received, and no block is sent twice over one link.  In an all-to-all each rank has a "
        "different block for each other rank.  In a ring, blocks pass through ranks that do not need them; in pairwise "
        "exchange they do not.",
        [("allgather", "ring"), ("alltoall", "ring"), ("alltoall", "pairwise")],
    ),
]
DRAWN = (*PRIMITIVES, "neighbor_allgather", "neighbor_alltoall")  # the v-variants have the same schedules
GROWTH = (2, 4, 8, 16, 64, 256)


def guide(given: Setting, gif: str = "") -> Iterator[tuple[str, str]]:
    """Yield all files of the site, as (name, content); `gif` is the address of the GIF encoder, see `scripts`."""
    films = {name: [given.film(one) for one in algorithms_of(name).values()] for name in DRAWN}
    yield "index.html", index(films)
    for primitive in films.values():
        for one in primitive:
            yield f"{one.algorithm.stem}.svg", sheet(one)
            yield f"{one.algorithm.stem}.html", _algorithm_page(one, primitive, gif)
    for comparison in COMPARISONS:
        yield comparison.file, _comparison_page(comparison, given, gif)


def index(films: dict[str, list[Film]]) -> str:
    """Return the first page."""
    nav = tag("nav", *(tag("a", words(name), href=f"#{name}") for name in films))
    compared = [tag("li", tag("a", words(one.title), href=one.file)) for one in COMPARISONS]
    body = [tag("h1", "Collectives, step by step"), nav, tag("h2", "Comparisons"), tag("ul", *compared)]
    body.append(tag("p", words(f"In the tables, {say('notation')}"), class_="quiet"))
    for name, several in films.items():
        near = COLLECTIVES[name].near
        doc = inspect.getdoc(importlib.import_module(f"pycoll.primitives.{'neighbors' if near else name}")) or ""
        body += [tag("h2", words(name), id=name), *(tag("p", words(part)) for part in doc.split("\n\n"))]
        body.append(tag("div", *map(_card, several), class_="cards"))
        if not near:  # whose costs depend on the topology
            body.append(scroll(_costs(several)))
    return document("Collectives, step by step", "".join(body))


def _card(film: Film) -> str:
    _, width, height = steps(film)
    form = f"aspect-ratio: {width:.6g} / {height:.6g}"
    picture = tag(
        "img", src=f"{film.algorithm.stem}.svg#steps", alt=f"Steps of {film.algorithm}", loading="lazy", style=form
    )
    name, text = tag("b", words(film.algorithm.name)), tag("p", words(summary(film)))
    return tag("a", name, text, picture, class_="card", href=f"{film.algorithm.stem}.html")


def _costs(films: Sequence[Film]) -> str:
    """Return a table of the formulas of some algorithms, with the counts."""
    table = []
    for one in films:
        doc = documented(one.algorithm)
        here = {"Rounds": str(one.counts.rounds), "Sent": _sent(one), "Cost": cost(one)}
        link = tag("a", words(one.algorithm.name), href=f"{one.algorithm.stem}.html")
        cells = [
            tag("code", words(doc[name])) + tag("br") + words(now) if name in doc else "" for name, now in here.items()
        ]
        table.append([link, *cells])
    heading = [
        "algorithm",
        "rounds",
        "sent (busiest rank)",
        f"cost; below the formula: counted for {films[0].size} ranks",
    ]
    return tag("table", rows([heading], "th"), rows(table))


def _sent(film: Film) -> str:
    return busiest(film, lambda counts: counts.sent)


def _algorithm_page(film: Film, beside: Sequence[Film], gif: str) -> str:
    title = film_title(film)
    others = [
        tag("a", words(one.algorithm.name), href=f"{one.algorithm.stem}.html") for one in beside if one is not film
    ]
    home = tag("a", "All collectives", href=f"index.html#{film.algorithm.primitive.name}")
    sheet_link = tag("a", "All steps on one sheet", href=f"{film.algorithm.stem}.svg")
    body = [tag("nav", home, sheet_link, *others), tag("h1", words(title)), *introduction(film)]
    return document(title, "".join([*body, player([film]), described(film)]), scripts(gif))


def _comparison_page(comparison: Comparison, given: Setting, gif: str) -> str:
    films = [given.film(find(*names)) for names in comparison.algorithms]
    home = tag("nav", tag("a", "All collectives", href="index.html"))
    body = [home, tag("h1", words(comparison.title)), tag("p", words(comparison.text)), player(films)]
    body += [tag("h2", "Costs"), scroll(_side_by_side(films))]
    for one in films:
        body += [tag("h2", tag("a", words(str(one.algorithm)), href=f"{one.algorithm.stem}.html")), scroll(loads(one))]
    body += [tag("h2", "For growing numbers of ranks"), scroll(_growth(films))]
    return document(comparison.title, "".join(body), scripts(gif))


def _side_by_side(films: Sequence[Film]) -> str:
    table = [
        [str(one.algorithm), str(one.counts.rounds), str(max(one.counts.messages)), _sent(one), cost(one)]
        for one in films
    ]
    heading = ["", "rounds", "messages (busiest rank)", "sent (busiest rank)", "cost"]
    return tag("table", rows([heading], "th"), rows([[words(cell) for cell in row] for row in table]))


def _growth(films: Sequence[Film]) -> str:
    """Return a table of rounds and bytes sent by the busiest rank, from the formulas."""
    table = []
    for one in films:
        doc = documented(one.algorithm)
        numbers = [
            [evaluate(doc[field], p, 1, one.segments, k=one.algorithm.k) for field in ("Rounds", "Sent")]
            for p in GROWTH
        ]
        table.append([words(str(one.algorithm)), *(f"{rounds:.0f} rounds, {sent:.3g} Z" for rounds, sent in numbers)])
    return tag("table", rows([["", *(f"p = {p}" for p in GROWTH)]], "th"), rows(table))

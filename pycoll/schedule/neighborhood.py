"""The neighborhood of a collective between neighbors, described in a call or by command-line options."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import product
from numbers import Integral
from typing import Any, NamedTuple

from .hosts import Hosts, without_domains
from .neighbors import (
    Neighbors,
    Stencil,
    around,
    check_stencil,
    graph_neighbors,
    grid_neighbors,
    on_hosts,
    stencil_neighbors,
)
from .registry import Algorithm, Primitive

OPTIONS = ("dims", "periods", "offsets", "edges")


class Neighborhood(NamedTuple):
    """The neighbors of each rank, and the topology in words."""

    neighbors: Sequence[Neighbors]
    text: str

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.neighbors)

    def known_to(self, algorithm: Algorithm, hosts: Hosts) -> Sequence[Neighbors]:
        """Return the edges that each rank needs to know: its own, or also those of its host."""
        if not algorithm.needs_counts:
            return self.neighbors
        return on_hosts(self.neighbors, without_domains(hosts or range(self.size)))

    def supports(self, algorithm: Algorithm) -> bool:
        """Return whether an algorithm can run in this topology."""
        try:
            self.check(algorithm)
        except ValueError:
            return False
        return True

    def check(self, algorithm: Algorithm) -> None:
        """Raise ValueError if an algorithm cannot run in this topology."""
        if algorithm.needs_stencil:
            check_stencil(self.neighbors[0].stencil)


def neighborhood(
    ranks: int | None = None,
    dims: Sequence[int] | None = None,
    periods: Sequence[bool] | bool | None = None,
    offsets: Sequence[Sequence[int]] | None = None,
    edges: Sequence[tuple[int, int]] | None = None,
) -> Neighborhood:
    """Return a grid, as Create_cart and Create_neighborhood make it, or a graph with these edges.

    Without `offsets`, a rank has two neighbors in each dimension.  A single value of `periods` is for all dimensions.
    """
    if (dims is None) == (edges is None):
        given = "none is given" if dims is None else "both are given"
        raise ValueError(f"a neighborhood is a grid (dims) or a graph (edges): {given}")
    _check_integers("ranks", None if ranks is None else [ranks], ranks)
    _check_integers("dims", dims, dims)
    for name, values in (("offsets", offsets), ("edges", edges)):
        for each in _sequence(name, values) if values is not None else ():
            _check_integers(name, each, values)
    if pairs := [edge for edge in edges or () if len(edge) != 2]:
        raise ValueError(f"edges: {pairs[0]} is not a pair of ranks")
    if periods is not None and not isinstance(periods, bool):
        _sequence("periods", periods)
    if dims is None:
        assert edges is not None
        return _graph(ranks, edges, periods, offsets)
    dims = tuple(dims)
    if not dims or min(dims) < 1:
        raise ValueError(f"dims={dims}: the sides of a grid must be positive")
    if ranks not in (None, math.prod(dims)):
        raise ValueError(f"dims={dims} is a grid of {math.prod(dims)} ranks, but ranks={ranks}")
    periods = (bool(periods),) * len(dims) if periods is None or isinstance(periods, bool) else tuple(periods)
    if len(periods) != len(dims):
        raise ValueError(f"periods={periods} has {len(periods)} values for dims={dims}, which has {len(dims)}")
    text = f"{_periodic(periods)}grid of {'x'.join(map(str, dims))}"
    if offsets is None:
        stencil = around(dims, periods)
        return Neighborhood([each._replace(stencil=stencil) for each in grid_neighbors(dims, periods)], text)
    stencil = Stencil(dims, periods, tuple(map(tuple, offsets)))
    if wrong := [offset for offset in stencil.offsets if len(offset) != len(dims)]:
        raise ValueError(f"offsets: {wrong[0]} has {len(wrong[0])} numbers for dims={dims}, which has {len(dims)}")
    found = [stencil_neighbors(rank, stencil) for rank in range(math.prod(dims))]
    what = "corners" if set(stencil.offsets) == set(corners(len(dims))) else f"{len(stencil.offsets)} offsets"
    return Neighborhood(found, f"{text} with {what}")


def _sequence(name: str, values: Any) -> Sequence[Any]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(f"{name}={values!r} is not a sequence")
    return values


def _check_integers(name: str, values: Any, given: Any) -> None:
    if values is not None and not all(isinstance(each, Integral) for each in _sequence(name, values)):
        raise TypeError(f"{name}={given!r} has something else than integers")


def _graph(ranks: int | None, edges: Sequence[tuple[int, int]], periods: Any, offsets: Any) -> Neighborhood:
    for name, value in (("periods", periods), ("offsets", offsets)):
        if value is not None:
            raise ValueError(f"{name}={value!r} is for a grid (dims), not for a graph (edges)")
    size = max((max(edge) + 1 for edge in edges), default=1) if ranks is None else ranks
    if wrong := [edge for edge in edges if not (0 <= min(edge) and max(edge) < size)]:
        raise ValueError(f"edges: {wrong[0]} is not an edge between {size} ranks")
    return Neighborhood(graph_neighbors(size, edges), f"graph of {len(edges)} edges")


def _periodic(periods: Sequence[bool]) -> str:
    if all(periods):
        return "periodic "
    return f"partly periodic ({','.join(str(int(each)) for each in periods)}) " if any(periods) else ""


def corners(dimensions: int) -> list[tuple[int, ...]]:
    """Return the offsets of all neighbors on the sides and at the corners."""
    return [offset for offset in product((-1, 0, 1), repeat=dimensions) if any(offset)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a neighborhood."""
    group = parser.add_argument_group("collectives between neighbors")
    group.add_argument("--dims", type=_dims, metavar="AxB", help="a grid with these sides, for example 4x4")
    group.add_argument(
        "--periods",
        type=_periods,
        nargs="?",
        const=True,
        metavar="0,1",
        help="whether each dimension is periodic; without values, all are (default: none)",
    )
    group.add_argument(
        "--offsets",
        type=_offsets,
        metavar="A,B:A,B",
        help="neighbors in the grid: --offsets=-1,0:1,1, or corners for all sides and corners (default: the sides)",
    )
    group.add_argument(
        "--edges", type=_edges, metavar="A-B,A-B", help="a graph with edges from A to B, instead of a grid"
    )


def described(options: argparse.Namespace, primitive: Primitive) -> dict[str, Any]:
    """Return the arguments of `neighborhood` that options give; none for a collective that needs none."""
    given = {name: getattr(options, name) for name in OPTIONS}
    if not primitive.near:
        if wrong := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"--{wrong[0]} is for collectives between neighbors, not for {primitive.name}")
        return {}
    if options.dims is None and options.edges is None:
        raise ValueError(f"{primitive.name} needs --dims with the sides of a grid, or --edges with those of a graph")
    if given["offsets"] == "corners" and options.dims:
        given["offsets"] = corners(len(options.dims))
    return given


def _dims(text: str) -> tuple[int, ...]:
    return _numbers(text, "x", "the sides of a grid, for example 4x4")


def _periods(text: str) -> tuple[bool, ...]:
    found = _numbers(text, ",", "0 or 1 for each dimension, for example 1,0")
    if not set(found) <= {0, 1}:
        raise argparse.ArgumentTypeError(f"{text!r} is not 0 or 1 for each dimension, for example 1,0")
    return tuple(map(bool, found))


def _offsets(text: str) -> list[tuple[int, ...]] | str:
    if text == "corners":
        return text
    return [_numbers(part, ",", "corners or a list of offsets, for example 0,1:1,0") for part in text.split(":")]


def _edges(text: str) -> list[tuple[int, int]]:
    what = "a list of edges, for example 0-1,1-2"
    pairs = [_numbers(part, "-", what) for part in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return [(source, to) for source, to in pairs]


def _numbers(text: str, separator: str, what: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(separator)))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None

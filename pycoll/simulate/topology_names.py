"""Topologies as texts: ``torus:8x8x8``, or the name of a file with links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..base.links import SUFFIX
from .graph import read
from .topologies import Dragonfly, FatTree, Rails, Topology, Torus


class Form(NamedTuple):
    """How a topology is written: the names of its sizes (None for any number of them), and whether it has a taper."""

    kind: type[Topology]
    sizes: tuple[str, ...] | None
    tapered: bool = False

    def __str__(self) -> str:
        return "x".join(self.sizes or ("N", "N", "...")) + "[:TAPER]" * self.tapered


FORMS = {
    "torus": Form(Torus, None),
    "fat-tree": Form(FatTree, ("LEAVES", "HOSTS"), True),
    "dragonfly": Form(Dragonfly, ("GROUPS", "ROUTERS", "HOSTS"), True),
    "rails": Form(Rails, ("HOSTS", "RANKS")),
}
WRITTEN = ", ".join([*(f"{name}:{form}" for name, form in FORMS.items()), f"FILE{SUFFIX}"])


def parse(text: str) -> Topology:
    """Return the topology that a text such as ``torus:8x8x8``, or the name of a file with links, stands for.

    Raises
    ------
    OSError
        If the file cannot be read.
    TypeError
        If it is not a text.
    ValueError
        If the text is not one of the forms in `WRITTEN`, a number in it is too small, or the file is wrong.
    """
    if not isinstance(text, str):
        raise TypeError(f"topology={text!r} is not a text such as 'torus:8x8x8'")
    if text.endswith(SUFFIX):
        return read(text)
    name, *parts = text.split(":")
    form = FORMS.get(name)
    try:
        sizes = tuple(map(int, parts[0].split("x")))
        taper = tuple(map(float, parts[1:]))
    except (IndexError, ValueError):
        form = None
    if form is None or len(taper) > form.tapered or (form.sizes and len(sizes) != len(form.sizes)):
        raise ValueError(f"topology={text!r} is not one of: {WRITTEN}")
    if min(sizes) < 1 or not all(1 <= each < math.inf for each in taper):
        raise ValueError(f"topology={text!r}: sizes and the taper are at least 1")
    return form.kind(sizes) if form.sizes is None else form.kind(*sizes, *taper)  # type: ignore[call-arg]


def check_hosts(text: str | None, topology: Topology, hosts: Sequence[int]) -> None:
    """Raise ValueError if a topology, named by this text, does not have all these hosts."""
    outside = [host for host in (min(hosts), max(hosts)) if not 0 <= host < (topology.size or math.inf)]
    if outside:
        last = (topology.size or 0) - 1
        raise ValueError(f"topology={text!r} has hosts 0 to {last}, but a rank is on {outside[0]}")

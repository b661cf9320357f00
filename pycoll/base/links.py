"""Files with the links of a network, one line for each direction: ``python -m pycoll.tune --links`` writes them.

`pycoll.simulate` and `pycoll.synthesize` read them as topologies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from .files import write_text

SUFFIX = ".json"


class Times(NamedTuple):
    """The times of one direction of a link: the latency in seconds, and the seconds per byte."""

    alpha: float
    beta: float


Links = dict[tuple[int, int], Times]  # by the host that sends and the host that receives


def reversed_links(links: Links) -> Links:
    """Return the links with both directions exchanged."""
    return {(there, here): times for (here, there), times in links.items()}


def write(path: str | Path, links: Mapping[tuple[int, int], Times], **more: Any) -> None:
    """Write links, and facts about them."""
    rows = [
        {"from": here, "to": there, "alpha": times.alpha, "beta": times.beta}
        for (here, there), times in sorted(links.items())
    ]
    head = "".join(f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in more.items())
    write_text(path, "{" + head + '"links": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n")


def read(path: str | Path) -> Links:
    """Read the links of a file; raise ValueError if it is not such a file, OSError if it cannot be read."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = document.get("links") if isinstance(document, dict) else None
        if not isinstance(rows, list) or not rows:
            raise ValueError('its top level is not an object with a list "links"')
        links: Links = {}
        for row in rows:
            ends, times = _read(row)
            if ends in links:
                raise ValueError(f"{json.dumps(row)}: there is another link from {ends[0]} to {ends[1]}")
            links[ends] = times
    except RecursionError:
        raise ValueError(f"{path} is not a file of links: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a file of links: {error}") from None
    return links


def _read(row: Any) -> tuple[tuple[int, int], Times]:
    """Return the hosts and the times of a link; raise ValueError if they are wrong."""
    why = ""
    if not isinstance(row, dict) or row.keys() != {"from", "to", "alpha", "beta"}:
        why = "a link has the fields from, to, alpha and beta"
    elif not all(type(end) is int and end >= 0 for end in (row["from"], row["to"])) or row["from"] == row["to"]:
        why = "from and to are two different hosts, numbered from 0"
    elif not all(isinstance(row[name], Real) and 0 <= row[name] < math.inf for name in Times._fields):
        why = "alpha and beta are finite numbers that are not negative"
    elif not row["beta"]:
        why = "beta, the seconds per byte, is 0"
    if why:
        raise ValueError(f"{json.dumps(row)}: {why}")
    return (row["from"], row["to"]), Times(row["alpha"], row["beta"])

"""The directory of exported rules.

It has the files that the library reads, ``settings.sh``, which names them, and ``measurements.json``, to which runs
with other numbers of ranks add theirs.
"""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

from pycoll.base.files import write_json, write_text
from pycoll.runtime import native
from pycoll.selection.tuning_file import circumstances, merged

from .rules import Library, Range, Rules

FORMAT, VERSION = "pycoll export", 1
MEASUREMENTS, SETTINGS = "measurements.json", "settings.sh"


def existing(folder: Path) -> dict[str, Any]:
    """Return the measurements in the directory; raise ValueError if the file is something else."""
    path = folder / MEASUREMENTS
    if not path.exists():
        return {"format": FORMAT, "version": VERSION, "mpi": native.library(), "measurements": []}
    try:
        found = json.loads(path.read_text())
        known = (found["format"], found["version"]) == (FORMAT, VERSION)
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise ValueError(f"{MEASUREMENTS} was not written by this version of --export")
    return dict(found)


def with_measurement(document: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """Return the document with a measurement, which replaces the one with as many ranks.

    Older sizes and primitives that it does not contain remain if they were measured in the same environment.
    """
    others = []
    for other in document["measurements"]:
        if other["ranks"] != one["ranks"]:
            others.append(other)
        elif other["hosts"] == one["hosts"] and circumstances(other) == circumstances(one):
            one = one | {"primitives": merged(other["primitives"], one["primitives"])}
    return document | {"measurements": [*others, one]}


def rules(document: dict[str, Any]) -> Rules:
    """Return the rules by the measurements; neighbouring sizes with the same algorithm are one range."""
    found: Rules = {}
    for measurement in document["measurements"]:
        for primitive, points in measurement["primitives"].items():
            ranges: list[Range] = []
            for point, end in zip(points, [*[point["nbytes"] - 1 for point in points[1:]], math.inf]):
                one = Range(point["nbytes"], max(point["nbytes"], min(point["most"], end)), point["selected"])
                if ranges and one.algorithm == ranges[-1].algorithm and one.least == ranges[-1].most + 1:
                    one = Range(ranges.pop().least, one.most, one.algorithm)
                if one.algorithm:
                    ranges.append(one)
            if ranges:
                found.setdefault(primitive, {})[measurement["ranks"]] = ranges
    return found


def write(library: Library, folder: Path, document: dict[str, Any]) -> list[Path]:
    """Write all files and return their paths; remove those that are not needed.

    ``settings.sh``, which makes the others effective, is removed first and written last; it is missing if there are no
    rules.
    """
    settings = folder / SETTINGS
    found = rules(document)
    settings.unlink(missing_ok=True)
    spread = {one["ranks"] for one in document["measurements"] if one["hosts"] > 1}
    texts = library.files(found, spread) if found else {}
    paths = {name: str((folder / name).absolute()) for name in texts}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in library.variables(paths).items()]
    for name in set(library.names) - set(texts):
        (folder / name).unlink(missing_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(folder / MEASUREMENTS, document)
    if lines:
        write_text(settings, "".join(f"{line}\n" for line in lines))
    return [folder / name for name in (*texts, MEASUREMENTS, *([SETTINGS] if lines else []))]

"""Files with the schedule of all ranks, in several formats.

Each format is a module with the function `write`, from a `pycoll.schedule.formats.plan.Plan` to the content of a file,
and a function that reads this content.  What is read is a document (`pycoll.schedule.document`), so that all else needs
to know only documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..document import text_of
from . import chakra, goal, msccl, msccl_reader, mscclpp, mscclpp_reader
from .operations import NoAlgorithm
from .plan import ExportedSchedule
from .rounds import document_from

__all__ = ["ENDINGS", "FORMATS", "Format", "NoAlgorithm", "files_written", "name_of", "parse", "read"]


class Format(NamedTuple):
    """How a file is written, as one text or as bytes for each rank, and what its name ends with."""

    write: Callable[[ExportedSchedule], str | list[bytes]]
    ending: str


FORMATS = {
    "json": Format(lambda plan: text_of(plan.document()), ".json"),
    "msccl": Format(msccl.write, ".xml"),
    "mscclpp": Format(mscclpp.write, ".json"),
    "goal": Format(goal.write, ".goal"),
    "chakra": Format(chakra.write, ".et"),
}
ENDINGS = list(dict.fromkeys(each.ending for each in FORMATS.values()))


def read(file: Path) -> dict[str, Any]:
    """Return the document of a file.

    Raises
    ------
    NoAlgorithm
        If the file is right, but has no blocks, or cuts the blocks of pycoll.
    ValueError
        If the file is not of its format, or if it deadlocks, has a race, or does not compute its collective.
    """
    files = chakra.files_of(file) if file.suffix == ".et" else [file]
    return parse([each.read_bytes() for each in files], file.suffix, name_of(file))


def parse(contents: Sequence[bytes], ending: str, name: str) -> dict[str, Any]:
    """Return the document of the contents of files, see `read`."""
    if ending == ".et":
        return chakra.read(contents)
    text = contents[0].decode()
    if ending == ".goal":
        goal.check(text)
    if ending == ".xml":
        return document_from(name, *msccl_reader.read(text))
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    is_plan = isinstance(found, dict) and "gpus" in found
    return document_from(name, *mscclpp_reader.read(found)) if is_plan else found


def name_of(file: Path) -> str:
    """Return the name of the algorithm of a file."""
    return file.name.split(".")[0] if file.suffix == ".et" else file.stem


def files_written(plan: ExportedSchedule, format: str, file: Path) -> dict[Path, bytes]:
    """Return the content of each file of a format; a format with a file for each rank adds the rank to the name."""
    content = FORMATS[format].write(plan)
    if isinstance(content, str):
        return {file: content.encode()}
    return {
        file.with_name(f"{name_of(file)}.{rank}{FORMATS[format].ending}"): each for rank, each in enumerate(content)
    }

"""The files of a checkpoint: the manifest, and the part that each rank wrote.

Reading a file raises FileNotFoundError if it is missing, and OSError if the disk fails.  For content that is damaged or
malformed, it raises ValueError with the name of the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.progress import until
from .flat import Piece, named_dtype

FORMAT = 1
MANIFEST = "manifest.json"
GENERATION = "[0-9a-f]{16}"  # names the files of one save
OWN = "optimizer."  # begins the kinds of the arrays that may differ from rank to rank


class Manifest(NamedTuple):
    """The content of a manifest."""

    generation: str
    ranks: int
    extra: Any


def part_path(directory: Path, generation: str, rank: int) -> Path:
    """Return the path of the file that a rank writes."""
    return directory / f"{generation}-{rank}.npz"


@contextlib.contextmanager
def locked(directory: Path, shared: bool = False) -> Iterator[None]:
    """Wait until no other driver writes to a directory, or with `shared` only reads from it, and keep it so.

    Does nothing if there is no such directory, or if the file system has no locks.
    """
    try:
        number = os.open(directory, os.O_RDONLY)
    except OSError:
        yield
        return

    def taken() -> bool:
        try:
            fcntl.flock(number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
            return False
        except OSError:  # not supported
            pass
        return True

    try:
        until(taken, "the checkpoint", lambda: f"another driver is writing or reading {directory}")
        yield
    finally:
        os.close(number)


@contextlib.contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Raise ValueError with the name of the file for any error that its content causes.

    zipfile and NumPy raise errors of many types for damaged files, for example OSError for a wrong offset.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ValueError(f"{path} is not {what} of a checkpoint: {error or type(error).__name__}") from None


def _check(right: object, problem: str) -> None:
    if not right:
        raise ValueError(problem)


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of the checkpoint in a directory."""
    path = directory / MANIFEST
    text = path.read_bytes()
    with _reading(path, "the manifest"):
        document = json.loads(text)
        _check(isinstance(document, dict), "it is not an object")
        missing = [name for name in ("format", "generation", "ranks", "extra") if name not in document]
        _check(not missing, f"there is no {', '.join(missing)}")
        form, generation, ranks, extra = (document[name] for name in ("format", "generation", "ranks", "extra"))
        _check(type(form) is int and form == FORMAT, f"its format is {form!r}, not {FORMAT}")
        named = isinstance(generation, str) and re.fullmatch(GENERATION, generation)
        _check(named, f"generation={generation!r} is not 16 hexadecimal digits")
        _check(type(ranks) is int and ranks >= 1, f"ranks={ranks!r} is not a positive number")
        return Manifest(generation, ranks, extra)


class _Location(NamedTuple):
    """The location of a piece of an array in a part."""

    member: str
    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: str


class FilePart:
    """The file of one rank; arrays are read on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = path.open("rb")
        try:
            with _reading(path, "a part"):
                self._zip = zipfile.ZipFile(file)
                about = json.loads(self._array("about").tobytes())
                counts = {"optimizer": about["steps"], "outer": about.get("outer_steps", {})}  # older files have one
                self.steps = {kind: {name: _count(n) for name, n in steps.items()} for kind, steps in counts.items()}
                self.own = bool(about.get("own", False))  # whether the state of the optimizer is that of this rank only
                self._private = {name: str(dtype) for name, dtype in about["private"].items()}
                self._locations: dict[tuple[str, str], list[_Location]] = {}
                for number, (kind, name, *location) in enumerate(about["index"]):
                    self._locations.setdefault((kind, name), []).append(_location(number, *location))
        except BaseException:
            file.close()
            raise
        self._file = file

    def __enter__(self) -> FilePart:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def find(self, kind: str, name: str, wanted: Piece) -> Iterator[Piece]:
        """Yield the pieces of an array in this part that overlap the wanted piece."""
        for member, start, stop, shape, dtype in self._locations.get((kind, name), ()):
            if start < wanted.stop and wanted.start < stop:
                with _reading(self.path, "a part"):
                    values = _typed(self._array(member), dtype)
                    _check(values.shape == (stop - start,), f"{member} has shape {values.shape}")
                yield Piece(start, values, shape)

    def private(self) -> dict[str, np.ndarray]:
        """Return the arrays that belong to this rank only."""
        with _reading(self.path, "a part"):
            return {name: _typed(self._array(f"private/{name}"), dtype) for name, dtype in self._private.items()}

    def _array(self, name: str) -> np.ndarray:
        """Read an array to the end of its file, because zipfile compares checksums there."""
        with self._zip.open(f"{name}.npy") as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            _check(not member.read(1), f"{name} is longer than its header says")
        return array


class Parts:
    """All parts of a checkpoint, as one rank reads them."""

    def __init__(self, parts: Sequence[FilePart], own: FilePart | None) -> None:
        """Take the state of the optimizer from `own`, a part of this rank; without it, from rank 0."""
        self._common = [part for rank, part in enumerate(parts) if rank == 0 or not part.own]
        self._own = [own] if own else self._common

    def find(self, kind: str, name: str, wanted: Piece) -> Iterator[Piece]:
        """Yield the pieces of an array that overlap the wanted piece."""
        for part in self._own if kind.startswith(OWN) else self._common:
            yield from part.find(kind, name, wanted)

    def steps(self) -> dict[str, dict[str, int]]:
        """Return the number of updates of each parameter, for each optimizer."""
        sources = {"optimizer": self._own, "outer": self._common}
        return {
            kind: {name: count for part in parts for name, count in part.steps[kind].items()}
            for kind, parts in sources.items()
        }


def _count(number: Any) -> int:
    _check(type(number) is int and number >= 0, f"{number!r} is not a count")
    return int(number)


def _location(number: int, start: Any, stop: Any, shape: Any, dtype: Any) -> _Location:
    location = _Location(str(number), _count(start), _count(stop), tuple(map(_count, shape)), str(dtype))
    _check(location.start <= location.stop <= math.prod(location.shape), f"piece {number} is not within its array")
    return location


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """Restore the dtype of an array; NumPy reads dtypes that it does not define as bytes."""
    typed: np.ndarray = array.view(named_dtype(dtype)) if array.dtype.kind == "V" else array
    _check(typed.dtype == named_dtype(dtype), f"an array has dtype {typed.dtype}, not {dtype}")
    return typed

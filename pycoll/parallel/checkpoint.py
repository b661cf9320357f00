"""Checkpoints: a driver's parameters and its optimizer's state on disk, whole again at any number of ranks.

A checkpoint is a directory.  Each rank that has something to save writes it into a file of its own, as pieces of
flattened parameters; ``manifest.json``, which is replaced last and atomically, names these files.  So the directory
always holds the checkpoint before or the whole new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll

from ..base.files import write_atomically
from .driver import Driver
from .flat import Array, Piece, fill, named_dtype
from .optimizers import Optimizer

FORMAT = 1
MANIFEST = "manifest.json"


def save(path: str | os.PathLike, driver: Driver, optimizer: Optimizer | None = None, extra: Any = None) -> None:
    """Write a checkpoint into the directory `path`; all ranks of the driver together.

    `extra` is anything that JSON can hold, rank 0's, such as the number of the epoch.  A checkpoint that is there
    before is replaced, atomically.  Rates are not saved: an optimizer is made with them again.  OSError on the rank
    whose disk fails, RuntimeError on the others.
    """
    optimizer = getattr(driver, "optimizer", None) or optimizer
    directory, comm = Path(path), driver.comm
    generation = _new_generation(comm)
    document = {"format": FORMAT, "generation": generation, "ranks": comm.size, "extra": extra}
    with _together(comm, "make the directory"):
        if comm.rank == 0:
            directory.mkdir(parents=True, exist_ok=True)
    try:
        with _together(comm, "write its part"):
            _write_part(_part_path(directory, generation, comm.rank), driver, optimizer)
        with _together(comm, "write the manifest"):
            if comm.rank == 0:
                text = json.dumps(document, indent=1)
                write_atomically(directory / MANIFEST, lambda file: file.write(text.encode()))
    finally:
        if comm.rank == 0:
            _remove_parts_that_are_not_named(directory)
        pycoll.barrier(comm=comm)


def _part_path(directory: Path, generation: str, rank: int) -> Path:
    return directory / f"{generation}-{rank}.npz"


def _remove_parts_that_are_not_named(directory: Path) -> None:
    """Those of the checkpoint before, or of this one if it failed; no other files."""
    with contextlib.suppress(OSError, ValueError):
        named = _read_manifest(directory)["generation"] if (directory / MANIFEST).exists() else ""
        for path in directory.iterdir():
            found = re.fullmatch(r"([0-9a-f]{16})-[0-9]+\.npz(.*\.tmp)?", path.name)
            if found and (found[1] != named or found[2]):
                path.unlink()


def _read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest; ValueError if it is none."""
    path = directory / MANIFEST
    text = path.read_bytes()
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is no manifest of a checkpoint: {error}") from None
    if not isinstance(manifest, dict) or not {"format", "generation", "ranks", "extra"} <= manifest.keys():
        raise ValueError(f"{path} is no manifest of a checkpoint")
    if manifest["format"] != FORMAT:
        raise ValueError(f"{path} has format {manifest['format']!r}, not {FORMAT}")
    return manifest


def _new_generation(comm: MPI.Intracomm) -> str:
    """A name for the files of one save, the same on all ranks."""
    number = np.frombuffer(uuid.uuid4().bytes[:8], np.uint64).copy()
    return f"{pycoll.bcast(number, comm=comm)[0]:016x}"


@contextlib.contextmanager
def _together(comm: MPI.Intracomm, what: str) -> Iterator[None]:
    """What is inside is done on all ranks; if it fails on one, all raise an error."""
    error = None
    try:
        yield
    except Exception as caught:
        error = caught
    failed = pycoll.allgather(np.array([error is not None]), comm=comm)
    if error:
        raise error
    if failed.any():
        raise RuntimeError(f"checkpoint: rank {int(failed.argmax())} could not {what}")


def _write_part(path: Path, driver: Driver, optimizer: Optimizer | None) -> None:
    entries = list(_entries(driver, optimizer)) if driver.saves else []
    arrays = {str(i): _host(piece.values) for i, (_, _, piece) in enumerate(entries)}
    arrays |= {f"private/{name}": _host(array) for name, array in driver.private.items()}
    about = {
        "index": [
            [kind, name, piece.start, piece.stop, piece.shape, str(piece.values.dtype)] for kind, name, piece in entries
        ],
        "private": {name: str(array.dtype) for name, array in driver.private.items()},
        "steps": _steps(driver, optimizer) if optimizer and driver.saves else {},
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load(path: str | os.PathLike, driver: Driver, optimizer: Optimizer | None = None) -> Any:
    """Read a checkpoint into a driver and an optimizer, all ranks of the driver together; returns `extra`.

    The numbers of ranks, units and servers may differ from those that saved it; what ranks had of their own (the
    errors that a hook feeds back) is read if the number of ranks is the same.  FileNotFoundError if there is none,
    ValueError if it does not fit.
    """
    optimizer = getattr(driver, "optimizer", None) or optimizer
    directory = Path(path)
    with _together(driver.comm, "read it"):
        manifest = _read_manifest(directory)
        with contextlib.ExitStack() as stack:
            paths = (_part_path(directory, manifest["generation"], rank) for rank in range(manifest["ranks"]))
            parts = [stack.enter_context(_Part(path)) for path in paths]
            _fill(driver, optimizer, parts)
    driver.loaded()
    return manifest["extra"]


def _fill(driver: Driver, optimizer: Optimizer | None, parts: list[_Part]) -> None:
    for kind, name, piece in _entries(driver, optimizer):
        described = name if kind == "parameters" else f"{name} ({kind})"
        fill(piece, described, [found for part in parts for found in part.find(kind, name, piece)])
    if optimizer:
        steps = {name: count for part in parts for name, count in part.about["steps"].items()}
        for key, name, _ in driver.pieces(driver.saved["parameters"]):
            if key in optimizer.steps:
                optimizer.steps[key] = steps.get(name, 0)
    driver.load_private(parts[driver.comm.rank].private() if len(parts) == driver.comm.size else {})


def _entries(driver: Driver, optimizer: Optimizer | None) -> Iterator[tuple[str, str, Piece]]:
    """All that is saved, as (kind, parameter's name, piece)."""
    groups = dict(driver.saved)
    if optimizer:
        groups |= {f"optimizer.{kept}": arrays for kept, arrays in optimizer.state.items()}
    for kind, arrays in groups.items():
        for _, name, piece in driver.pieces(arrays):
            yield kind, name, piece


def _steps(driver: Driver, optimizer: Optimizer) -> dict[str, int]:
    named = ((key, name) for key, name, _ in driver.pieces(driver.saved["parameters"]))
    return {name: optimizer.steps[key] for key, name in named if key in optimizer.steps}


def _host(array: Array) -> np.ndarray:
    return array.get() if hasattr(array, "get") else array


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array as it was saved: NumPy reads dtypes that are not its own as bytes."""
    return array.view(named_dtype(dtype)) if array.dtype.kind == "V" else array


class _Part:
    """What one rank wrote; arrays are read when they are needed."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = np.load(path, allow_pickle=False)
            self.about = json.loads(self._file["about"].tobytes())
        except (EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no part of a checkpoint: {error}") from None
        self._places: dict[tuple[str, str], list[tuple]] = {}
        for i, (kind, name, *place) in enumerate(self.about["index"]):
            self._places.setdefault((kind, name), []).append((i, *place))

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def find(self, kind: str, name: str, wanted: Piece) -> Iterator[Piece]:
        """Those pieces of a parameter that it has and that overlap what is wanted."""
        for i, start, stop, shape, dtype in self._places.get((kind, name), ()):
            if start < wanted.stop and wanted.start < stop:
                yield Piece(start, _typed(self._file[str(i)], dtype), tuple(shape))

    def private(self) -> dict[str, np.ndarray]:
        """What its rank had of its own."""
        return {name: _typed(self._file[f"private/{name}"], dtype) for name, dtype in self.about["private"].items()}

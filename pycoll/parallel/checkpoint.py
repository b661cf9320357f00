"""Checkpoints: the parameters of a driver and the state of its optimizer on disk, for any number of ranks.

A checkpoint is a directory.  Each rank writes its own file, which holds pieces of flattened parameters.
``manifest.json`` names these files; it is replaced last, and atomically.  So the directory always holds either the
complete previous checkpoint or the complete new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import pycoll

from ..base.files import write_atomically
from ..base.user_warnings import warn
from .agreement import together
from .checkpoint_files import FORMAT, GENERATION, MANIFEST, FilePart, Parts, locked, part_path, read_manifest
from .contents import Contents
from .driver import Driver
from .flat import Array
from .optimizers import Optimizer


def save(
    path: str | os.PathLike[str],
    driver: Driver,
    optimizer: Optimizer | None = None,
    extra: Any = None,
    *,
    replicas: MPI.Comm | None = None,
) -> None:
    """Write a checkpoint.  All ranks of the driver call this together.

    A previous checkpoint in the directory is replaced atomically.  Learning rates are not saved, because they are
    arguments of the optimizer.

    Parameters
    ----------
    path : path-like
        The directory, on a file system that all ranks share.  It is created if necessary.
    driver : driver of `pycoll.parallel`
        The parameters to save.
    optimizer : Optimizer, optional
        The state to save.  An optimizer of the driver itself takes precedence.
    extra : object
        Any value that JSON supports, for example the number of the epoch.  The value on rank 0 is saved.
    replicas : mpi4py.MPI.Intracomm, optional
        The ranks that have the same arrays as this rank, if several drivers have the same parameters; for example the
        axis of a mesh over which the shards of `FullyShardedDataParallel` are averaged.  All ranks of it call this
        together.  The driver of its rank 0 writes, and the others wait.

    Raises
    ------
    OSError
        On a rank that cannot write its files.
    TypeError
        On rank 0, if JSON does not support `extra`.
    ValueError
        If the ranks of the driver do not have the same rank in `replicas`.
    RuntimeError
        On all other ranks, if one rank fails.

    Notes
    -----
    If several drivers save to one directory without `replicas`, they write one after the other, and the last checkpoint
    remains.  This needs a file system with locks, ``flock`` of the directory; not all network file systems have them.
    """
    contents = Contents(driver, optimizer)
    if replicas is None:
        _save(Path(path), contents, extra)
        return
    ranks = pycoll.allgather_object(replicas.rank, comm=driver.comm)
    if len(set(ranks)) > 1:
        listed = ", ".join(map(str, ranks))
        raise ValueError(f"replicas: the ranks of the driver have different ranks in it: {listed}")
    with together(replicas, "checkpoint", "save it"):
        if replicas.rank == 0:
            _save(Path(path), contents, extra)


def _save(directory: Path, contents: Contents, extra: Any) -> None:
    comm = contents.driver.comm
    generation: str = pycoll.bcast_object(uuid.uuid4().hex[:16], comm=comm)  # names the files, the same on all ranks
    document = {"format": FORMAT, "generation": generation, "ranks": comm.size, "extra": extra}
    left: list[Path] = []
    with together(comm, "checkpoint", "make the directory"):
        if comm.rank == 0:
            directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with together(comm, "checkpoint", "lock the directory"):
            if comm.rank == 0:
                stack.enter_context(locked(directory))
                left = _temporary_manifests(directory)
        try:
            with together(comm, "checkpoint", "write its part"):
                _write_part(part_path(directory, generation, comm.rank), contents)
            with together(comm, "checkpoint", "write the manifest"):
                if comm.rank == 0:
                    text = _as_json(document)
                    write_atomically(directory / MANIFEST, lambda file: file.write(text.encode()))
        finally:
            if comm.rank == 0:
                _remove_parts_that_are_not_named(directory)
                _remove(left)
            pycoll.barrier(comm=comm)


def _as_json(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, indent=1)
    except (TypeError, ValueError) as error:
        raise type(error)(f"extra={document['extra']!r}: {error}") from None


def _temporary_manifests(directory: Path) -> list[Path]:
    """Return the manifests that are being written, or that jobs left when they were killed."""
    name = re.compile(rf"{re.escape(MANIFEST)}[a-z0-9_]{{8}}\.tmp")  # as `write_atomically` names them
    with contextlib.suppress(OSError):
        return [path for path in directory.iterdir() if name.fullmatch(path.name)]
    return []


def _remove(left: list[Path]) -> None:
    """Remove temporary manifests that were there before this save; a job that was writing one has renamed it since."""
    with contextlib.suppress(OSError):
        for path in left:
            path.unlink(missing_ok=True)


def _remove_parts_that_are_not_named(directory: Path) -> None:
    """Remove the parts of the previous checkpoint, or of this one if it failed, but no other files."""
    with contextlib.suppress(OSError, ValueError):
        named = read_manifest(directory).generation if (directory / MANIFEST).exists() else ""
        for path in directory.iterdir():
            found = re.fullmatch(rf"({GENERATION})-[0-9]+\.npz(.*\.tmp)?", path.name)
            if found and (found[1] != named or found[2]):
                path.unlink()


def _write_part(path: Path, contents: Contents) -> None:
    driver = contents.driver
    driver.check_saving()
    pieces = list(contents.pieces(contents.written()))
    arrays = {str(i): _host(piece.values) for i, (_, _, piece) in enumerate(pieces)}
    arrays |= {f"private/{name}": _host(array) for name, array in driver.private.items()}
    steps = contents.steps() if driver.saves or contents.has_own else {}
    about = {
        "index": [
            [kind, name, piece.start, piece.stop, piece.shape, str(piece.values.dtype)] for kind, name, piece in pieces
        ],
        "private": {name: str(array.dtype) for name, array in driver.private.items()},
        "steps": steps.get("optimizer", {}),
        "outer_steps": steps.get("outer", {}),
        "own": contents.has_own,
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    manifest = path.with_name(MANIFEST)  # a private checkpoint stays private
    write_atomically(path, lambda file: np.savez(file, **arrays), manifest)  # type: ignore[arg-type, unused-ignore]


def load(path: str | os.PathLike[str], driver: Driver, optimizer: Optimizer | None = None) -> Any:
    """Read a checkpoint into a driver and an optimizer.  All ranks of the driver call this together.

    Parameters
    ----------
    path : path-like
        The directory of the checkpoint.
    driver : driver of `pycoll.parallel`
        The driver whose parameters are set.
    optimizer : Optimizer, optional
        The optimizer whose state is set.  An optimizer of the driver itself takes precedence.

    Returns
    -------
    object
        The `extra` that was saved.

    Raises
    ------
    FileNotFoundError
        If there is no checkpoint.
    ValueError
        If a file is damaged or malformed; the message names it.  Also if the checkpoint does not fit the driver, if
        parameters that share a count of updates have different ones in it, or if the ranks find different checkpoints.
    RuntimeError
        On ranks that do not see the problem, if others do.

    Notes
    -----
    The numbers of ranks, units and servers may differ from the run that saved the checkpoint.  Arrays that belong to
    one rank, for example the state of a hook, are read only if the number of ranks is the same.  With another number of
    ranks, all ranks of a `LocalSGD` get the state of the optimizer of rank 0, and rank 0 issues a warning.

    An optimizer counts the updates of a whole shard, so a unit of `FullyShardedDataParallel` cannot hold parameters
    that `DistributedDataParallel` with `find_unused` updated at different numbers of steps.  Put them in other units.

    All ranks read all their arrays before any rank changes its own.  So if one rank cannot read the checkpoint, nothing
    changes on any rank.  Meanwhile each rank needs memory for the arrays that it reads.
    """
    contents, directory = Contents(driver, optimizer), Path(path)
    with together(driver.comm, "checkpoint", "read it"), contextlib.ExitStack() as stack:
        with locked(directory, shared=True):
            manifest = read_manifest(directory)
            paths = (part_path(directory, manifest.generation, rank) for rank in range(manifest.ranks))
            parts = [stack.enter_context(FilePart(path)) for path in paths]
        mine = parts[driver.comm.rank] if len(parts) == driver.comm.size else None
        private = mine.private() if mine else {}
        driver.check_private(private)
        found = Parts(parts, mine if mine and mine.own and contents.has_own else None)
        steps = found.steps()
        contents.check_steps(steps)
        values = contents.read(found.find, steps)
        of_rank_0 = parts[0].own and contents.has_own and not mine
    if len(set(pycoll.allgather_object(manifest.generation, comm=driver.comm))) > 1:
        raise ValueError(f"{directory}: the ranks have read different checkpoints")
    contents.put(values, private)
    if of_rank_0 and driver.comm.rank == 0:
        warn(f"the checkpoint is from {manifest.ranks} ranks: all ranks have the state of the optimizer of its rank 0")
    return manifest.extra


def _host(array: Array) -> np.ndarray:
    host: np.ndarray = array.get() if hasattr(array, "get") else array
    return host

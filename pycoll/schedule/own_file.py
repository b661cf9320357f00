"""Files of users with algorithms: the option ``--file`` of the commands.

A Python file defines algorithms, and is named after their primitive.  A file in one of the `pycoll.schedule.formats`
has the schedule of all ranks, and is named after its algorithm.
"""

from __future__ import annotations

import functools
import importlib.util
import traceback
from pathlib import Path

from . import formats
from .costs import count
from .document import algorithm_of
from .endless import limit_rounds
from .hosts import Hosts
from .proof import ProofError, situation
from .registry import PRIMITIVES, Algorithm, algorithms_of, find_schedule, register_schedule
from .symmetry import NotSymmetric, symmetric_rounds


@functools.cache
def load(file: Path) -> list[tuple[str, str]]:
    """Register the algorithms of a file outside of the package; return the primitive and the name of each.

    From now on, the rounds of schedules have a time limit in this process.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the file is neither a Python file nor one with a schedule, if it raises an exception, or if it registers no
        algorithm.  `formats.NoAlgorithm` if its schedule is right, but has no blocks, or cuts those of pycoll.
    """
    if file.suffix in formats.ENDINGS:
        return [_load_schedule(file)]
    with file.open("rb"):  # raises OSError if the file cannot be read, whatever its name
        pass
    known = {(primitive, name): find_schedule(primitive, name) for primitive, name in registered()}
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"--file {file} is neither a Python file nor one of: {', '.join(formats.ENDINGS)}")
    limit_rounds()
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in _frames(error, str(file.absolute()))]
        where = f"--file {file}, line {lines[-1]}" if lines else f"--file {file}"
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    if found := [name for name in registered() if known.get(name) is not find_schedule(*name)]:
        return found
    raise ValueError(f"--file {file} registers no algorithm")


def _load_schedule(file: Path) -> tuple[str, str]:
    """Register the schedule of a file under the name of the file."""
    try:
        algorithm = algorithm_of(formats.read(file), formats.name_of(file))
        register_schedule(algorithm)
    except formats.NoAlgorithm as error:
        raise formats.NoAlgorithm(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"--file {file}: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"--file {file}: {error}") from None
    return algorithm.primitive.name, algorithm.name


def registered() -> list[tuple[str, str]]:
    """Return the primitive and the name of every algorithm."""
    return [(primitive, name) for primitive in PRIMITIVES for name in algorithms_of(primitive)]


def problem(algorithm: Algorithm, size: int, root: int = 0, segments: int = 1, hosts: Hosts = None) -> str:
    """Return in words why an algorithm is wrong, or an empty string if it is proved."""
    case = size, root, segments, hosts
    try:
        count(algorithm, *case)
        symmetric_rounds(algorithm, size, range(size))
    except (ProofError, NotSymmetric) as error:
        return str(error)
    except Exception as error:
        return f"{situation(algorithm, *case)}: {raised(error, algorithm)}"
    return ""


def check(algorithm: Algorithm, size: int, root: int = 0, segments: int = 1, hosts: Hosts = None) -> None:
    """Raise ValueError with the reason if an algorithm is wrong."""
    if wrong := problem(algorithm, size, root, segments, hosts):
        raise ValueError(wrong)


def raised(error: Exception, algorithm: Algorithm) -> str:
    """Return in words an exception of a schedule, and, for an algorithm in Python, where its file raised it."""
    if algorithm.only:
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = [last, *_frames(error, algorithm.generator.__code__.co_filename)][-1]
    return f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"


def _frames(error: BaseException, file: str) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]

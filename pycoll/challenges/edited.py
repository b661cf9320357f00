"""Algorithms that a text defines: how they are read, and whether and where their proof fails."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..schedule.cuts import whole
from ..schedule.diagnosis import WaitForGraph
from ..schedule.moves import Schedule
from ..schedule.proof import Counts, ProofError, prove
from ..schedule.registry import PRIMITIVES, Algorithm, parameters_of

FILE = "<the editor>"
SIZES = range(1, 33)  # numbers of ranks for which algorithms are proved
Goal = Callable[[Algorithm, int, Counts], str]  # what a right algorithm still lacks on this number of ranks; or nothing


class Verdict(NamedTuple):
    """Whether an algorithm is right, in words, the line of the text that is not, and the ranks that wait forever.

    One that is `correct` but not `proved` misses the goal of its challenge.
    """

    proved: bool
    text: str
    line: int | None = None
    waiting: WaitForGraph | None = None
    correct: bool = False


def read(primitive: str, text: str, names: Mapping[str, Any], adapt: Callable[[Algorithm], Algorithm]) -> Algorithm:
    """Return the algorithm that a text defines below ``@algorithm()``.

    Parameters
    ----------
    primitive : str
        The name of its primitive.
    text : str
        The text.
    names : mapping
        What the text can use.
    adapt : callable
        Called with the algorithm, and returns the one to use instead.

    Raises
    ------
    ValueError
        If the text does not define one algorithm.
    Exception
        Whatever the text raises.
    """
    found = list[Algorithm]()

    def algorithm(cut: Any = whole, ordered: bool = True, **options: Any) -> Callable[[Any], Any]:
        def register(generator: Callable[..., Schedule]) -> Callable[..., Schedule]:
            parameters, counts = parameters_of(generator), options.get("needs_counts", False)
            one = Algorithm(PRIMITIVES[primitive], generator.__name__, generator, cut, ordered, parameters, counts)
            found.append(adapt(one))
            return generator

        return register

    linecache.cache[FILE] = len(text), None, text.splitlines(keepends=True), FILE
    exec(compile(text, FILE, "exec"), {**names, "algorithm": algorithm})
    if len(found) != 1:
        raise ValueError(f"the text defines {len(found)} algorithms: write one generator below @algorithm()")
    return found[0]


def examine(make: Callable[[], Algorithm], goal: Goal | None = None) -> Verdict:
    """Prove the algorithm that `make` returns for all numbers of ranks in `SIZES`; then it must reach the goal."""
    try:
        algorithm, missed = make(), ""
        segments = 3 if algorithm.pipelined else 1
        for size in SIZES:
            parts = algorithm.parts(size, segments)
            for root in {0, size - 1} if algorithm.primitive.rooted else {0}:
                for hosts in (None, tuple(rank // 2 for rank in range(size))) if algorithm.knows_hosts else (None,):
                    counts = prove(algorithm, size, root, segments, partial(_share, parts), hosts)
                    missed = missed or (goal(algorithm, size, counts) if goal else "")
    except ProofError as error:
        line = _line_of(str(error), lambda rank: algorithm.schedule(rank, size, root, segments, hosts))
        return Verdict(False, str(error), line, error.waiting)
    except (Exception, SystemExit) as error:
        here = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
        said = "".join(traceback.format_exception_only(error)).strip()
        line = here[-1].lineno if here else error.lineno if isinstance(error, SyntaxError) else None
        return Verdict(False, f"line {line}: {said}" if here else said, line)
    if missed:
        return Verdict(False, f"It is right, but {missed}.", correct=True)
    return Verdict(True, f"Proved for {SIZES[0]} to {SIZES[-1]} ranks.", correct=True)


def _share(parts: int, block: object) -> float:
    """Return the size of a block of a vector that is cut into so many."""
    return 1 / parts


def _line_of(error: str, schedule: Callable[[int], Any]) -> int | None:
    """Return the line that yields the first round that the error of a proof names; None if it names none."""
    found = re.search(r"rank (\d+), round (\d+)", error)
    if not found:
        return None
    rounds = iter(schedule(int(found[1])))
    for _ in range(int(found[2])):
        next(rounds, None)
    frame = getattr(rounds, "gi_frame", None)
    return frame.f_lineno if frame else None

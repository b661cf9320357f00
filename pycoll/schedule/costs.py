"""The closed forms in the algorithms' docstrings, read as data.

The notation is explained in `pycoll.primitives`.  The tests hold every formula against `pycoll.schedule.proof`'s
counts, and the README's table is printed from them: ``python -m pycoll.costs``.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from .registry import PRIMITIVES, Algorithm, algorithms_of

FIELDS = ("Rounds", "Messages", "Sent", "Received", "Cost", "Limits", "Source")


@dataclass(frozen=True)
class Network:
    """What things cost: a message, a byte moved, a byte combined."""

    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0


def lg(p: int) -> int:
    """Logarithm to base 2, rounded up."""
    return (p - 1).bit_length()


def bruck(p: int) -> int:
    """How many hops all distances below p take together, one for each bit set; p/2*lg(p) for powers of two."""
    return sum(distance.bit_count() for distance in range(p))


_FUNCTIONS = {"lg": lg, "bruck": bruck, "min": min, "max": max}


def busbw_factor(primitive: str, size: int) -> float:
    """What algbw is multiplied with to get bus bandwidth, as nccl-tests defines it; it has no scans."""
    share = (size - 1) / size
    return {"bcast": 1.0, "reduce": 1.0, "scan": 1.0, "exscan": 1.0, "barrier": 0.0, "allreduce": 2 * share}.get(
        primitive, share
    )


def documented(algorithm: Algorithm) -> dict[str, str]:
    """The named lines of an algorithm's docstring."""
    text = inspect.getdoc(algorithm.generator) or ""
    found = {}
    for match in re.finditer(rf"^({'|'.join(FIELDS)}): (.*(?:\n {{4}}.*)*)", text, re.MULTILINE):
        found[match[1]] = re.sub(r"\s+", " ", match[2])
    return found


def formula_for(formula: str, p: int) -> tuple[str, bool]:
    """The part of a formula that holds for p ranks, and whether it is exact (else it is an upper bound)."""
    exact, _, bound = (part.strip() for part in formula.partition("at most"))
    exact = exact.rstrip(";")
    return (exact, True) if exact and (not bound or p & (p - 1) == 0) else (bound, False)


def evaluate(
    formula: str, p: int, Z: float = 1.0, S: int = 1, network: Network | None = None, h: int | None = None
) -> float:
    """A docstring's formula for p ranks on h hosts (p by default), Z bytes, S segments; where it is a bound, the bound.

    Formulas are the package's own source text, never a caller's.
    """
    if p == 1:
        return 0.0
    formula = formula_for(formula, p)[0]
    network = network or Network()
    names = {"p": p, "h": h or p, "Z": Z, "S": S, "alpha": network.alpha, "beta": network.beta, "gamma": network.gamma}
    return float(eval(formula, {"__builtins__": {}}, {**_FUNCTIONS, **names}))


def table() -> str:
    """All algorithms as a Markdown table: rounds, bytes sent by the busiest rank, cost."""
    lines = ["| primitive | algorithm | rounds | sent (busiest rank) | cost |", "|---|---|---|---|---|"]
    for primitive in PRIMITIVES:
        for name, algorithm in algorithms_of(primitive).items():
            doc = documented(algorithm)
            cells = [
                primitive,
                name,
                *(f"`{doc[field]}`" if field in doc else "" for field in ("Rounds", "Sent", "Cost")),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

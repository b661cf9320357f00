"""The cost formulas in the docstrings of algorithms, read as data.

`pycoll.primitives` explains the notation.  ``python -m pycoll.prove`` and the tests compare every formula with the
counts of `pycoll.schedule.proof`.  ``python -m pycoll.costs`` prints all formulas as a table.
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass
from functools import lru_cache

from .cuts import ports, side, sides
from .hosts import Hosts
from .moves import Block
from .proof import Counts, prove
from .registry import PRIMITIVES, Algorithm, algorithms_of

FIELDS = ("Rounds", "Messages", "Sent", "Received", "Cost", "Limits", "Source")


@dataclass(frozen=True)
class CostModel:
    """The costs of a message (alpha), of a byte sent or received (beta) and of a byte combined (gamma)."""

    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0


def lg(p: float) -> int:
    """Return the logarithm to base 2, rounded up."""
    return (math.ceil(p) - 1).bit_length()


def digits(p: int, b: int) -> int:
    """Return how many digits to base b of all numbers below p are not 0; p/2*lg(p) for base 2 and powers of two."""
    return sum(number // b**digit % b > 0 for number in range(p) for digit in range(log(p, b)))


def log(p: int, k: int) -> int:
    """Return the logarithm to base k, rounded up."""
    return next(power for power in range(p) if int(k**power) >= p)


def fan(p: int, k: int) -> int:
    """Return the number of messages that the root of a k-nomial tree sends: (k-1)*log(p, k) for powers of k."""
    messages = 0
    while p > 1:
        messages += min(p, k) - 1
        p = -(-p // k)
    return messages


def pat(p: int, k: int) -> int:
    """Return the number of rounds of PAT with at most k blocks in a message: lg(p) if k >= p/2, and p-1 if k is 1."""
    deep = lg(-(-p // k))
    return lg(p) - deep + min(1 << deep, p) - 1


def around(p: int, k: int) -> int:
    """Return the sum of the sides of a torus of k dimensions, each less 1."""
    return sum(sides(p, k)) - k


def lgs(p: int, k: int) -> int:
    """Return the sum of lg over the sides of a torus of k dimensions."""
    return sum(map(lg, sides(p, k)))


_FUNCTIONS = {
    function.__name__: function for function in (lg, digits, log, fan, pat, side, around, lgs, ports, min, max)
}


def busbw_factor(primitive: str, size: int) -> float:
    """Return the ratio of busbw to algbw, as nccl-tests defines it; 1 for scans, which nccl-tests does not have."""
    share = (size - 1) / size
    return {"bcast": 1.0, "reduce": 1.0, "scan": 1.0, "exscan": 1.0, "barrier": 0.0, "allreduce": 2 * share}.get(
        primitive, share
    )


def documented(algorithm: Algorithm) -> dict[str, str]:
    """Return the named lines in the docstring of an algorithm."""
    text = inspect.getdoc(algorithm.generator) or ""
    found = {}
    for match in re.finditer(rf"^({'|'.join(FIELDS)}): (.*(?:\n {{4}}.*)*)", text, re.MULTILINE):
        found[match[1]] = re.sub(r"\s+", " ", match[2])
    return found


def formula_for(formula: str, p: int, k: int | None = None) -> tuple[str, bool]:
    """Return the part of a formula that holds for p ranks, and whether it is exact (else it is an upper bound)."""
    exact, _, bound = (part.strip() for part in formula.partition("at most"))
    exact = exact.rstrip(";")
    base = max(k or 2, 2)
    return (exact, True) if exact and (not bound or base ** log(p, base) == p) else (bound, False)


def evaluate(
    formula: str,
    p: int,
    Z: float = 1.0,
    S: int = 1,
    network: CostModel | None = None,
    h: int | None = None,
    k: int | None = None,
) -> float:
    """Evaluate a formula, or its bound, for p ranks on h hosts (p by default), Z bytes, S segments and the number k.

    Formulas come from the source of the package, never from a caller.
    """
    if p == 1:
        return 0.0
    formula = formula_for(formula, p, k)[0]
    network = network or CostModel()
    names = {"p": p, "h": h or p, "Z": Z, "S": S, "k": k}
    names |= {"alpha": network.alpha, "beta": network.beta, "gamma": network.gamma}
    return float(eval(formula, {"__builtins__": {}}, {**_FUNCTIONS, **names}))


def missing_lines(algorithm: Algorithm) -> list[str]:
    """Return the lines that the docstring of an algorithm lacks; Limits are optional, and so are bytes of a barrier."""
    optional = {"Limits"} | ({"Sent", "Received"} if algorithm.primitive.name == "barrier" else set())
    return [field for field in FIELDS if field not in documented(algorithm) and field not in optional]


@lru_cache(maxsize=1024)
def count(algorithm: Algorithm, size: int, root: int = 0, segments: int = 1, hosts: Hosts = None) -> Counts:
    """Prove an algorithm and count its operations, with 1 byte for each block, and 8 bytes for each count it sends."""

    def nbytes(block: Block) -> int:
        return 8 * size if isinstance(block, tuple) and block[0] == "counts" else 1

    return prove(algorithm, size, root, segments, nbytes, hosts)


def disagreements(algorithm: Algorithm, size: int, segments: int = 1, hosts: Hosts = None) -> dict[str, str]:
    """Compare the formulas in the docstring with `count`; return a message for each line that is wrong.

    Each coefficient of the cost has its own message.  Formulas with h are for the same number of
    ranks on each of h hosts.
    """
    formulas, counts = documented(algorithm), count(algorithm, size, 0, segments, hosts)
    most = {"Messages": max(counts.messages), "Sent": max(counts.sent), "Received": max(counts.received)}
    counted = [("Rounds", "", counts.rounds, CostModel()), *((field, "", most[field], CostModel()) for field in most)]
    for name in ("alpha", "beta", "gamma"):
        counted.append(("Cost", f", coefficient of {name}", getattr(counts, name), CostModel(**{name: 1.0})))
    h = None if hosts is None else len(set(hosts))
    Z = algorithm.parts(size, segments, hosts)
    wrong: dict[str, str] = {}
    for field, what, number, network in counted:
        formula = formulas.get(field, "0")  # "0" for the bytes of a barrier
        try:
            value = evaluate(formula, size, Z, segments, network, h, algorithm.k)
        except (ArithmeticError, NameError, SyntaxError, TypeError) as error:
            wrong[field] = f"{field}: the formula {formula!r} cannot be evaluated ({error})"
            continue
        exact = size == 1 or formula_for(formula, size, algorithm.k)[1]
        if not (math.isclose(number, value, abs_tol=1e-9) if exact else number <= value + 1e-9):
            where = f"p={size}, Z={Z}" + (f", S={segments}" if algorithm.pipelined else "")
            where += f", h={h}" if h else ""
            limit = "" if exact else "at most "
            gives = f"the formula {formula} gives {limit}{value:g}, but the schedule has {number:g}"
            wrong[field + what] = f"{field}{what}: {gives} ({where})"
    return wrong


def table() -> str:
    """Return all algorithms as a Markdown table: rounds, bytes sent by the busiest rank, cost."""
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

"""The points at which another algorithm becomes the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import NamedTuple

Curves = dict[str, list[float]]  # the seconds of each algorithm at each abscissa
LEVEL = 1.01  # the largest ratio to the fastest time that counts as equally fast


class Crossing(NamedTuple):
    """A point at which another algorithm becomes the fastest."""

    low: int  # the simulated points before and after it
    high: int
    at: float  # the abscissa at which the lines between these points meet
    seconds: float
    before: str
    after: str
    crosses: bool = True  # if false, the lines coincide up to `low` and separate there


def crossings(abscissas: Sequence[int], curves: Curves) -> list[Crossing]:
    """Find the points between which the fastest algorithm changes, and where the lines meet on logarithmic scales."""
    best: list[str] = []
    for index in range(len(abscissas)):
        fastest = min(curves, key=lambda name: curves[name][index])
        level = best and curves[best[-1]][index] <= LEVEL * curves[fastest][index]
        best.append(best[-1] if level else fastest)
    found = []
    for index, (before, after) in enumerate(pairwise(best)):
        if before != after:
            left, right = (log(curves[before][k] / curves[after][k]) for k in (index, index + 1))
            share = left / (left - right) if left != right else 1.0
            at = exp(log(abscissas[index]) + share * log(abscissas[index + 1] / abscissas[index]))
            first, last = curves[before][index : index + 2]
            ends = abscissas[index], abscissas[index + 1]
            crosses = curves[after][index] > LEVEL * curves[before][index]
            found.append(Crossing(*ends, at, exp(log(first) + share * log(last / first)), before, after, crosses))
    return found

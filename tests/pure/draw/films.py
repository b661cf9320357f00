"""Films (sequences of frames) of all algorithms, for the tests of drawings."""

import re

import pytest

from pycoll.draw.frames import film
from pycoll.draw.gallery import halves
from pycoll.schedule.registry import PRIMITIVES, algorithms_of

ALGORITHMS = [algorithm for name in PRIMITIVES for algorithm in algorithms_of(name).values()]
SVG = "{http://www.w3.org/2000/svg}"
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)


def films(algorithm, *sizes, segments=3):
    for size in sizes:
        root = size - 1 if algorithm.primitive.rooted else 0
        yield film(algorithm, size, root, segments, halves(size) if algorithm.knows_hosts else None)


def classes(markup, name):
    """Return the number of elements with the class `name`."""
    return sum(name in found.split() for found in re.findall(r'class="([^"]*)"', markup))

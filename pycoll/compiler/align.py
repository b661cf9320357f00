"""Cuts combinations at the start of a cache line of their result, so that no store crosses a line boundary.

NumPy allocates arrays 16 bytes after such a boundary.  Stores of 64 bytes that cross boundaries take three times as
long, if another core has read the old contents of the result, as in all-reduce in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .program import Apply, Program, Region, Step

LINE = 64  # bytes of a cache line
LONG = 1 << 11  # bytes of the shortest result for which the cut pays off


def aligned(program: Program, bases: Sequence[int], itemsize: int) -> Program:
    """Return the program for buffers at these addresses.  No element is cut.

    The result depends only on the positions of the addresses within a cache line.
    """
    steps: list[Step] = []
    for step in program.steps:
        if type(step) is Apply and step.out.size >= LONG:
            size = -(bases[step.out.buffer] + step.out.start) % LINE
            if size and size % itemsize == 0:
                steps += [Apply(*(part(region, size) for region in step)) for part in (_head, _rest)]
                continue
        steps.append(step)
    return program if len(steps) == len(program.steps) else replace(program, steps=steps)


def _head(region: Region, size: int) -> Region:
    return Region(region.buffer, region.start, size)


def _rest(region: Region, size: int) -> Region:
    return Region(region.buffer, region.start + size, region.size - size)

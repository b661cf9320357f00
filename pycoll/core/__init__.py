"""The compiled core: runs collectives of the ranks of a host in memory that they share.

It is written in Cython, and built if there is a C compiler when pycoll is installed.  Without it, `problem` says why,
and pycoll runs all calls with messages.
"""

from __future__ import annotations

problem = ""
try:
    from .front import Front, set_constants, uses_of
    from .machine import AREA_SIZE, TOKEN_AT, Program, Slots, Turn, has_loop
except ImportError as error:
    problem = f"the compiled core is missing: {error}"

__all__ = [
    "AREA_SIZE",
    "TOKEN_AT",
    "Front",
    "Program",
    "Slots",
    "Turn",
    "has_loop",
    "problem",
    "set_constants",
    "uses_of",
]

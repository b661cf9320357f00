"""Parsing and formatting of sizes, and command-line options for sizes with the names and meanings of nccl-tests."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..base.numbers import bytes_in

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def nbytes(text: str) -> int:
    """Parse a number of bytes: ``8``, ``64K``, ``1M``, ``2G``."""
    try:
        return bytes_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size_label(nbytes: int) -> str:
    """Format a number of bytes: ``8 B``, ``1 KiB``, ``1.5 MiB``; ``-`` for 0."""
    value, units = float(nbytes), list(UNITS)
    while value >= 1023.5 and len(units) > 1:  # a MiB split into three equal blocks loses a few bytes
        value, units = value / 1024, units[1:]
    return f"{round(value, 2):g} {units[0]}" if nbytes else "-"


def sizes(least: int, most: int, factor: int = 2, step: int | None = None) -> list[int]:
    """Return sizes from `least` to `most`, by a factor, or by a step if given; raise ValueError for invalid numbers."""
    if not 1 <= least <= most:
        raise ValueError(f"--minbytes {least} must be at least 1, and at most --maxbytes {most}")
    if step is not None:
        if step < 1:
            raise ValueError(f"--stepbytes {step} is not positive")
        return list(range(least, most + 1, step))
    if factor < 2:
        raise ValueError(f"--stepfactor {factor} is less than 2")
    found = [least]
    while found[-1] * factor <= most:
        found.append(found[-1] * factor)
    return found


def add_primitives(parser: argparse._ActionsContainer, known: Sequence[str], default: str = "all") -> None:
    """Add the names of primitives as arguments; an unknown name exits the program."""

    def primitive(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of: {', '.join(known)}")
        return name

    what = f"of: {', '.join(known)} (default: {default})"
    parser.add_argument("primitives", nargs="*", type=primitive, metavar="primitive", default=[], help=what)


def add_budget(parser: argparse._ActionsContainer, seconds: float) -> None:
    """Add the option for the time of all measurements."""
    what = "approximate measuring time in seconds (%(default)s)"
    parser.add_argument("--budget", type=_positive, default=seconds, metavar="SECONDS", help=what)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def points(primitives: Sequence[str], sizes: Sequence[int]) -> list[tuple[str, int]]:
    """Return the points to measure: each primitive with each number of bytes; a barrier has only 0."""
    return [(name, size) for name in primitives for size in (sizes if name != "barrier" else [0])]


def add_sizes(parser: argparse.ArgumentParser, least: str, most: str, factor: int) -> None:
    """Add the options for `sizes`, with these defaults."""
    parser.add_argument(
        "-b", "--minbytes", type=nbytes, default=least, metavar="SIZE", help="smallest size (%(default)s)"
    )
    parser.add_argument(
        "-e", "--maxbytes", type=nbytes, default=most, metavar="SIZE", help="largest size (%(default)s)"
    )
    parser.add_argument(
        "-f", "--stepfactor", type=int, default=factor, metavar="F", help="factor between sizes (%(default)s)"
    )

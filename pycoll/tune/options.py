"""Sizes, as people write them, and on a command line with the names and meanings that nccl-tests gives them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def nbytes(text: str) -> int:
    """A number of bytes: ``8``, ``64K``, ``1M``, ``2G``."""
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, for example 8, 64K or 1M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def size_label(nbytes: int) -> str:
    """A size as people write it: ``8 B``, ``1 KiB``, ``1.5 MiB``; ``-`` for none."""
    value, units = float(nbytes), list(UNITS)
    while value >= 1023.5 and len(units) > 1:  # three ranks' blocks of a MiB are a few bytes less
        value, units = value / 1024, units[1:]
    return f"{round(value, 2):g} {units[0]}" if nbytes else "-"


def sizes(least: int, most: int, factor: int = 2, step: int | None = None) -> list[int]:
    """Sizes from the least to the most, by a factor, or by a step if given; ValueError for numbers out of range."""
    if not 1 <= least <= most:
        raise ValueError(f"--minbytes {least} and --maxbytes {most}: not 1 <= minbytes <= maxbytes")
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
    """Add the names of primitives as arguments; an unknown name ends the program."""

    def primitive(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of: {', '.join(known)}")
        return name

    what = f"of: {', '.join(known)} (default: {default})"
    parser.add_argument("primitives", nargs="*", type=primitive, metavar="primitive", default=[], help=what)


def points(primitives: Sequence[str], sizes: Sequence[int]) -> list[tuple[str, int]]:
    """What is to be measured: each primitive with each number of bytes, of which a barrier has none."""
    return [(name, size) for name in primitives for size in (sizes if name != "barrier" else [0])]


def add_sizes(parser: argparse.ArgumentParser, least: str, most: str, factor: int) -> None:
    """Add the options of `sizes`, with these defaults."""
    parser.add_argument(
        "-b", "--minbytes", type=nbytes, default=least, metavar="SIZE", help="smallest size (%(default)s)"
    )
    parser.add_argument(
        "-e", "--maxbytes", type=nbytes, default=most, metavar="SIZE", help="largest size (%(default)s)"
    )
    parser.add_argument(
        "-f", "--stepfactor", type=int, default=factor, metavar="F", help="factor between sizes (%(default)s)"
    )

"""The options --from and --to: the time interval that is drawn, in ms."""

from __future__ import annotations

import argparse
import math


def add_window(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--from", type=float, default=0.0, dest="begin", metavar="MS", help="draw from this time on")
    parser.add_argument("--to", type=float, dest="end", metavar="MS", help="draw up to this time")


def check_window(options: argparse.Namespace) -> bool:
    """Return whether --from or --to is given; raise ValueError if they enclose no time."""
    begin, end = options.begin, options.end
    if not 0 <= begin < math.inf or (end is not None and not begin < end < math.inf):
        until = "" if end is None else f", and less than --to {end:g}"
        raise ValueError(f"--from {begin:g} must be at least 0{until}")
    return bool(begin) or end is not None

"""Numbers that users pass: checks whose errors name the argument; sizes and ranks as text."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

MOST = 8  # the most ranks that are named individually


def check_integer(name: str, value: Any, what: str) -> None:
    """Raise TypeError unless an argument is an integer."""
    try:
        operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} is not an integer: pass the {what}") from None


def check_positive(name: str, value: Any, what: str) -> None:
    """Raise TypeError unless an argument is an integer, and ValueError unless it is positive."""
    check_integer(name, value, what)
    if value < 1:
        raise ValueError(f"{name}={value} is not a positive {what}")


def check_real(name: str, value: Any) -> None:
    """Raise TypeError unless an argument is a real number."""
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r} is not a number")


def bytes_in(text: str) -> int:
    """Parse a number of bytes: ``8``, ``64K``, ``1M``, ``2G``; raise ValueError if it is none."""
    match = re.fullmatch(r"([0-9]+)([KMG]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size, for example 8, 64K or 1M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def listed(items: Sequence[object]) -> str:
    """Join items as in ``a, b and c``."""
    words = list(map(str, items))
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def ranks_named(ranks: Sequence[int]) -> str:
    """Name ranks as in ``rank 3`` or ``ranks 1, 2 and 5``."""
    shown = [*ranks[:MOST], f"{len(ranks) - MOST} more"] if len(ranks) > MOST else ranks
    return f"rank{'s' * (len(ranks) > 1)} {listed(shown)}"


def ranks_have(ranks: Sequence[int]) -> str:
    """Name ranks before a participle, as in ``rank 3 has``."""
    return f"{ranks_named(ranks)} {'has' if len(ranks) == 1 else 'have'}"

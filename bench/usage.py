"""Commands as they are typed: ``python -m bench`` in a checkout, ``python -m pycoll.bench`` where it is installed."""

from __future__ import annotations


def typed(text: str | None) -> str:
    """The text, with the name that this package was imported by in its commands."""
    return (text or "").replace("python -m bench", f"python -m {__package__}")

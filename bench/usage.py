"""Command names in help texts: ``python -m bench`` in a checkout, ``python -m pycoll.bench`` if installed."""

from __future__ import annotations


def typed(text: str | None) -> str:
    """Replace ``bench`` in commands by the name under which this package was imported."""
    return (text or "").replace("python -m bench", f"python -m {__package__}")

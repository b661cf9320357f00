"""Films in pages: they play a schedule in place."""

from __future__ import annotations

from html import escape

GIF = "../playground/gif.js"  # the address of the GIF encoder for a film; playground.py builds it


def film(address: str, title: str, playing: bool = False) -> str:
    """Return the markup of a film; `playing` is for one that moves at once, again and again, without controls."""
    fragment = "play" if playing else "film"
    return f'<iframe class="film" src="{address}#{fragment}" title="{escape(title)}" loading="lazy"></iframe>'

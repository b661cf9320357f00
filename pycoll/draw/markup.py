"""Elements of SVG and HTML as escaped text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = {"img", "input", "meta", "link", "br"}  # HTML elements without an end tag


def tag(name: str, /, *content: str, **attributes: object) -> str:
    """Return an element; `content` is markup.

    ``class_=`` becomes ``class``, ``data_step=`` becomes ``data-step``.  Attributes that are None or False are omitted.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    texts = [f' {key}="{escape(_text(value))}"' for key, value in given.items() if value is not False]
    return f"<{name}{''.join(texts)}>" + ("" if name in VOID else f"{''.join(content)}</{name}>")


def words(text: str) -> str:
    """Convert text to markup."""
    return escape(text, quote=False)


def rows(cells: Iterable[Iterable[str]], kind: str = "td") -> str:
    """Return the rows of a table; cells are markup."""
    return "".join(tag("tr", *(tag(kind, cell) for cell in row)) for row in cells)


def _text(value: object) -> str:
    if value is True:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""Elements of SVG and HTML as text, properly escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = {"img", "input", "meta", "link", "br"}  # HTML's elements that have no end


def tag(name: str, /, *content: str, **attributes: object) -> str:
    """An element; `content` is markup already.

    ``class_=`` gives ``class``, ``data_step=`` ``data-step``; None and False leave an attribute out.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    texts = [f' {key}="{escape(_text(value))}"' for key, value in given.items() if value is not False]
    return f"<{name}{''.join(texts)}>" + ("" if name in VOID else f"{''.join(content)}</{name}>")


def words(text: str) -> str:
    """Text as markup."""
    return escape(text, quote=False)


def rows(cells: Iterable[Iterable[str]], kind: str = "td") -> str:
    """The rows of a table; cells are markup."""
    return "".join(tag("tr", *(tag(kind, cell) for cell in row)) for row in cells)


def _text(value: object) -> str:
    if value is True:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)

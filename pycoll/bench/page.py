"""Render a report as HTML with embedded plots, or as Markdown with plots in separate files.  No MPI is needed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from html import escape

from markdown_it import MarkdownIt

from pycoll.base.figures import image

from .plots.document import Plot

Block = str | Plot  # Markdown, or a plot
NARROW = 700  # pixels; narrower pages show the plots for phones
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>pycoll benchmark report</title><style>
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b2430 }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --ink: #e8edf3 } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 80rem; margin: 2rem auto; padding: 0 1rem }
table { display: block; overflow-x: auto; border-collapse: collapse; white-space: nowrap }
th, td { padding: .2rem .5rem; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent) }
th { white-space: normal; vertical-align: bottom }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper) }
@media (max-width: 700px) { table { font-size: 13px } th, td { padding: .2rem .35rem } }
figure { margin: 1rem 0 } img { max-width: 100%; height: auto }
blockquote { margin: 1rem 0; padding: .1rem 1rem; border-left: .3rem solid #c2410c }
</style></head><body>
"""


def render(blocks: Iterable[Block], kind: str) -> dict[str, bytes]:
    """Return the contents of the files of a report by name; the report itself is last."""
    return _html(blocks) if kind == "html" else _markdown(blocks)


def _markdown(blocks: Iterable[Block]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    texts = []
    for block in blocks:
        if isinstance(block, Plot):
            name = re.sub(r"[^\w-]", "_", block.name) + ".svg"
            files[name] = image(block.draw(wide=True).figure, "svg")
            says = re.sub(r"([][])", r"\\\1", block.says)
            texts.append(f"![{says}]({name})")
        else:
            texts.append(block)
    return {**files, "report.md": ("\n\n".join(texts) + "\n").encode()}


def _html(blocks: Iterable[Block]) -> dict[str, bytes]:
    markdown = MarkdownIt("js-default")  # escapes HTML: names of files and machines may contain any text
    parts = [_picture(block) if isinstance(block, Plot) else markdown.render(block) for block in blocks]
    return {"report.html": f"{HEAD}{''.join(parts)}</body></html>\n".encode()}


def _picture(plot: Plot) -> str:
    wide, narrow = (base64.b64encode(image(plot.draw(wide=wide).figure, "svg")).decode() for wide in (True, False))
    kind = "data:image/svg+xml;base64,"
    return (
        f'<figure><picture><source media="(max-width: {NARROW}px)" srcset="{kind}{narrow}">'
        f'<img src="{kind}{wide}" alt="{escape(plot.says)}"></picture></figure>\n'
    )

"""Small pictures that the build draws.

- ``{topology} NAME ...`` shows simulated topologies; the content is the caption.
- ``{lanes}`` shows what happens at the same time. Each line of the content is a lane: its name, and a word for each
  unit of time. A dot is an idle unit, and equal words side by side are one box. The caption follows an empty line.
- ``{pipeline} SCHEDULE STAGES BATCHES [CHUNKS]`` shows the time chart of a pipeline; the content is the caption.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pycoll.draw.language import speaking
from pycoll.draw.markup import tag, words
from pycoll.draw.pipeline import bars
from pycoll.draw.sheet import style
from pycoll.simulate.picture import svg

from languages import language_of  # isort: skip

ROW, BOX, CHARACTER = 30, 22, 0.56  # pixels, pixels, em
Lanes = dict[str, list[str]]


def read(page: str, lines: Sequence[str]) -> Lanes:
    """Return the words of each lane; raise ValueError unless all lanes have the same number of them."""
    rows = [line.split() for line in lines if line.strip()]
    lanes = {name: rest for name, *rest in rows}
    if not lanes or not any(lanes.values()):
        raise ValueError(f"{page}: the picture has no lanes, or no units of time")
    if len(lanes) < len(rows):
        raise ValueError(f"{page}: two lanes have the same name")
    length = len(next(iter(lanes.values())))
    for name, rest in lanes.items():
        if len(rest) != length:
            raise ValueError(f"{page}, lane {name!r}: {len(rest)} units of time, but {length} in the first lane")
    return lanes


def drawn(lanes: Lanes) -> str:
    """Return the lanes as SVG; positions across are in percent, so that text keeps its size."""
    parts = []
    for row, (name, rest) in enumerate(lanes.items()):
        top = ROW * row + (ROW - BOX) / 2
        parts.append(tag("text", words(name), class_="name", x=-8, y=top + 15.5))
        at = 0
        for text, group in groupby(rest):
            length = len(list(group))
            if text != ".":
                left, width = 100 * at / len(rest), 100 * length / len(rest)
                size = {"width": f"{width:.4g}%", "height": BOX, "rx": 3}
                parts.append(tag("rect", class_=f"lane{min(row, 1)}", x=f"{left:.4g}%", y=top, **size))
                parts.append(tag("text", words(text), x=f"{left + width / 2:.4g}%", y=top + 15.5))
            at += length
    picture = tag("svg", *parts, width="100%", height=ROW * len(lanes), role="img", aria_label=", ".join(lanes))
    return tag("div", picture, style=f"padding-left: {CHARACTER * max(map(len, lanes)) + 0.8:.3g}em")


class Picture(SphinxDirective):
    """A picture with a caption."""

    has_content = True

    def picture(self) -> tuple[str, str, str]:
        """Return the markup of the picture, the text of the caption, and the name of the kind."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return the picture above the caption; a ValueError fails the build."""
        try:
            html, text, kind = self.picture()
        except ValueError as error:
            raise self.error(str(error)) from None
        caption = nodes.paragraph("", "", *self.parse_inline(text)[0], classes=["caption"])
        return [nodes.container("", nodes.raw("", html, format="html"), caption, classes=["picture", kind])]


class Topologies(Picture):
    """Pictures of topologies side by side."""

    required_arguments = 1
    final_argument_whitespace = True

    def picture(self) -> tuple[str, str, str]:
        """Return the pictures, each above its name."""
        figures = [
            tag("figure", svg(name), tag("figcaption", tag("code", words(name)))) for name in self.arguments[0].split()
        ]
        return "".join(figures), "\n".join(self.content), "topologies"


class Pipeline(Picture):
    """The time chart of a pipeline."""

    required_arguments, optional_arguments = 3, 1

    def picture(self) -> tuple[str, str, str]:
        """Return the chart in the language of the page."""
        name, *numbers = self.arguments
        with speaking(language_of(self.env.docname)):
            body, width, height = bars(name, *map(int, numbers))
        size = {"style": f"--natural: {width:.6g}px", "viewBox": f"0 0 {width:.6g} {height:.6g}"}
        rules = tag("style", style("drawing.css"))
        drawn = tag("svg", rules, body, class_="drawing", role="img", aria_label=" ".join(self.arguments), **size)
        return drawn, "\n".join(self.content), "pipeline"


class Timeline(Picture):
    """Lanes of time."""

    def picture(self) -> tuple[str, str, str]:
        """Return the lanes, and the text below them."""
        lanes, _, caption = "\n".join(self.content).partition("\n\n")
        return drawn(read(f"{self.env.docname}.md", lanes.splitlines())), caption, "lanes"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("topology", Topologies)
    app.add_directive("lanes", Timeline)
    app.add_directive("pipeline", Pipeline)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

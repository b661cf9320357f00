"""Complete pictures: a sheet with all frames or with the matrix, and single frames for the player."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from math import ceil
from textwrap import wrap

from .frames import MANY, Film
from .markup import tag, words
from .matrix import matrix
from .names import caption, setting, summary
from .svg import Drawing

WIDTH, NARROWEST, SPACE, LINE = 1240, 640, 30, 17
XMLNS = "http://www.w3.org/2000/svg"
LEGEND = "\u2713 finished \u00b7 faded: no longer needed \u00b7 thick edge: written in this step"
ARROWS = {"move": "stored on arrival", "combine": "combined on arrival"}


def style(name: str) -> str:
    """Return the text of a file in this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def markers() -> str:
    """Return the heads of both kinds of arrows; all drawings of a document refer to them."""
    heads = [
        tag(
            "marker",
            tag("path", d="M0 0L8 4L0 8Z", class_=f"head {kind}"),
            id=kind,
            viewBox="0 0 8 8",
            refX=7,
            refY=4,
            markerWidth=7,
            markerHeight=7,
            orient="auto",
            markerUnits="userSpaceOnUse",
        )
        for kind in ARROWS
    ]
    return tag("defs", *heads)


def played(film: Film) -> list[tuple[str, float, float]]:
    """Return SVG elements with width and height: one for each frame, or one matrix with a column for each frame."""
    if film.size > MANY:
        return [matrix(film)]
    drawing = Drawing(film)
    return [(drawing.frame(index), drawing.width, drawing.height) for index in range(len(film.frames))]


def legend(film: Film) -> list[str]:
    """Return explanations of colors and marks."""
    if film.size > MANY:
        return ["\u2192 sends to, \u2190 receives from, + receives from and combines; bar: finished fraction"]
    if film.hears:
        return ["blocks: the ranks that a rank has heard from, directly or through others", LEGEND]
    if film.algorithm.primitive.reduces:
        return ["stripes: the contributing ranks, in the order of combination", LEGEND]
    counts = ["#1: the counts of blocks from rank 1"] if film.counts_traffic else []
    return ["colors: the rank that the block comes from", *counts, LEGEND]


def sheet(film: Film) -> str:
    """Return a complete SVG document; its view #steps is the picture without the text around it."""
    drawn, width, tall = steps(film)
    total = max(width, NARROWEST)
    head, top = _lines([(f"{film.algorithm} on {setting(film)}", "name"), *_captions(film)], total)
    vector = [] if film.hears else ["Z: bytes of the whole vector; formulas in brackets"]
    keys, height = _lines([(line, "text") for line in [*vector, *legend(film)]], total, top + tall)
    if film.algorithm.primitive.reduces and film.size <= MANY:
        keys += _arrow_legend(height)
    size = {"width": total + 40, "height": height + 40}
    view = tag("view", id="steps", viewBox=_box(0, top, width, tall))
    paper = tag("rect", class_="paper", x=-20, y=-16, **size)
    names = tag("title", words(f"{film.algorithm} on {setting(film)}")), tag("style", words(style("drawing.css")))
    picture = tag("g", drawn, transform=f"translate(0 {top:.6g})")
    whole = [*names, view, markers(), paper, *head, picture, *keys]
    return tag("svg", *whole, xmlns=XMLNS, class_="drawing", role="img", viewBox=_box(-20, -16, *size.values()), **size)


def steps(film: Film) -> tuple[str, float, float]:
    """Return all frames in lines, each as high as its frames require, or the matrix; with width and height."""
    if film.size > MANY:
        drawn, width, tall = matrix(film)
        return tag("g", drawn, class_="frame"), width, tall + SPACE
    drawing, count = Drawing(film), len(film.frames)
    lines = ceil(count / max(2, int((WIDTH + SPACE) // (drawing.width + SPACE))))
    across = ceil(count / lines)
    frames, top = [], 0.0
    for first in range(0, count, across):
        line = range(first, min(first + across, count))
        above, below = (min(spare) for spare in zip(*map(drawing.spare, line)))
        for column, index in enumerate(line):
            move = f"translate({column * (drawing.width + SPACE):.6g} {top:.6g})"
            frames.append(tag("g", drawing.frame(index, above), class_="frame", transform=move))
        top += drawing.height - above - below + SPACE
    return "".join(frames), across * (drawing.width + SPACE) - SPACE, top


def _box(*numbers: float) -> str:
    return " ".join(f"{number:.6g}" for number in numbers)


def _captions(film: Film) -> list[tuple[str, str]]:
    return [(summary(film), "text"), *((line, "label") for line in caption(film))]


def _lines(texts: Sequence[tuple[str, str]], width: float, top: float = 0) -> tuple[list[str], float]:
    """Return lines of text, wrapped to a width, and the position below them."""
    drawn = []
    for text, kind in texts:
        for line in wrap(text, max(30, int(width / 6.6))):
            top += LINE + 4 * (kind == "name")
            drawn.append(tag("text", words(line), class_=kind, x=0, y=top - 5))
    return drawn, top + LINE


def _arrow_legend(top: float) -> list[str]:
    drawn = []
    for column, (kind, meaning) in enumerate(ARROWS.items()):
        left, y = column * 170, top - 10
        drawn.append(tag("path", class_=f"sample {kind}", d=f"M{left} {y:.6g}h28", marker_end=f"url(#{kind})"))
        drawn.append(tag("text", meaning, class_="text", x=left + 36, y=y + 4))
    return drawn

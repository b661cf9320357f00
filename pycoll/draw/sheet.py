"""Complete pictures: a sheet with all frames or with the matrix, and single frames for the player."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from math import ceil
from textwrap import wrap

from .bands import banded
from .frames import MANY, VERY_MANY, Film
from .legend import definitions, legend, samples
from .markup import tag, words
from .matrix import matrix
from .names import caption, summary, unit
from .names import title as film_title
from .svg import Drawing

WIDTH, NARROWEST, SPACE, LINE = 1240, 640, 30, 17
XMLNS = "http://www.w3.org/2000/svg"


def style(name: str) -> str:
    """Return the text of a file in this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


Picture = tuple[str, float, float]  # SVG elements, width and height


def played(film: Film, beside: Sequence[Film] = ()) -> tuple[list[Picture], bool]:
    """Return a picture of each frame, or a matrix with a column for each frame.

    Blocks are drawn on the same scale as in the films `beside` it.  Also return whether some rows are too low for it.
    """
    if film.size > MANY:
        return [table(film)], False
    drawing = Drawing(film, beside)
    frames = [(drawing.frame(index), drawing.width, drawing.height) for index in range(len(film.frames))]
    return frames, drawing.compact


def table(film: Film) -> tuple[str, float, float]:
    """Return the matrix, with a row for each rank or with bands, as SVG elements with width and height."""
    return banded(film) if film.size > VERY_MANY else matrix(film)


def sheet(film: Film) -> str:
    """Return a complete SVG document; its view #steps is the picture without the text around it."""
    drawn, width, tall = steps(film)
    total = max(width, NARROWEST)
    head, top = _lines([(film_title(film), "name"), *_captions(film)], total)
    vector = [] if film.hears else [unit(film) + ("" if film.neighborhood else "; formulas in brackets")]
    keys, height = _lines([(line, "text") for line in [*vector, *legend(film)]], total, top + tall)
    keys += _samples(film, height)
    size = {"width": total + 40, "height": height + 40}
    view = tag("view", id="steps", viewBox=_box(0, top, width, tall))
    paper = tag("rect", class_="paper", x=-20, y=-16, **size)
    names = tag("title", words(film_title(film))), tag("style", words(style("drawing.css")))
    picture = tag("g", drawn, transform=f"translate(0 {top:.6g})")
    whole = [*names, view, definitions(), paper, *head, picture, *keys]
    return tag("svg", *whole, xmlns=XMLNS, class_="drawing", role="img", viewBox=_box(-20, -16, *size.values()), **size)


def steps(film: Film) -> tuple[str, float, float]:
    """Return all frames in lines, each as high as its frames require, or the matrix; with width and height."""
    if film.size > MANY:
        drawn, width, tall = table(film)
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


def _samples(film: Film, top: float) -> list[str]:
    """Return the samples of the legend side by side."""
    drawn, left = [], 0.0
    for picture, meaning in samples(film):
        drawn.append(tag("g", picture, transform=f"translate({left:.6g} {top - 17:.6g})"))
        drawn.append(tag("text", words(meaning), class_="text", x=left + 44, y=top - 6))
        left += 64 + 6.2 * len(meaning)
    return drawn

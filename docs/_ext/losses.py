"""``{losses} RATE DELAY...`` draws the loss after each step, for each delay; its content is the caption.

The losses are those that the function ``train`` of the page returns: the build runs the program that defines it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from math import log
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from pycoll.draw.markup import tag, words

from languages import language_of  # isort: skip
from pictures import Picture  # isort: skip

PROGRAM = re.compile(r"^```python\n((?:(?!```).*\n)*?def train\(.*\n(?:(?!```).*\n)*)```", re.MULTILINE)
HEIGHT, LINE = 190, 14  # pixels: of the picture without the numbers of steps, between labels
WORDS = {"en": ("loss", "step"), "zh-CN": ("损失", "步")}
Losses = dict[str, list[float]]  # after each step, by the label of the line


def train_of(text: str) -> Callable[[int, float], list[float]]:
    """Return the function `train` of a page; raise ValueError if no program of the page defines it."""
    if not (program := PROGRAM.search(text)):
        raise ValueError("no program of the page defines train(delay, rate)")
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()):
        exec(program[1], names)
    train: Callable[[int, float], list[float]] = names["train"]
    return train


def drawn(losses: Losses, titles: Sequence[str]) -> str:
    """Return lines on a logarithmic axis; positions across are in percent, so that text keeps its size."""
    values = [value for line in losses.values() for value in line]
    low, high, steps = min(values), max(values), max(map(len, losses.values()))

    def down(value: float) -> float:
        return HEIGHT * (1 - log(value / low) / log(high / low))

    parts = [tag("text", words(titles[0]), class_="tick", x=-6, y=-8)]
    for tick in (10.0**power for power in range(-3, 7) if low <= 10.0**power <= high):
        parts.append(tag("line", class_="grid", x1="0", x2="100%", y1=down(tick), y2=down(tick)))
        parts.append(tag("text", f"{tick:g}", class_="tick", x=-6, y=down(tick) + 4))
    for step in range(0, steps + 1, 20):
        text = f"{step}" if step < steps else f"{titles[1]} {step}"
        parts.append(tag("text", words(text), class_="step", x=f"{100 * step / steps:.4g}%", y=HEIGHT + 16))
    lines = [
        tag(
            "polyline",
            class_=f"line{number}",
            points=" ".join(f"{at + 1} {down(one):.1f}" for at, one in enumerate(line)),
        )
        for number, line in enumerate(losses.values())
    ]
    size = {"width": "100%", "height": HEIGHT}
    parts.append(tag("svg", *lines, viewBox=f"0 0 {steps} {HEIGHT}", preserveAspectRatio="none", **size))
    parts += _labels({label: down(line[-1]) for label, line in losses.items()})
    return tag("svg", *parts, width="100%", height=HEIGHT + 20, role="img", aria_label=", ".join(losses))


def _labels(ends: dict[str, float]) -> Iterator[str]:
    """Write the name of each line at its end, or above the name of the next lower one."""
    numbers, above = [*ends], HEIGHT + LINE
    for label in sorted(ends, key=ends.__getitem__, reverse=True):
        above = min(ends[label], above - LINE)
        yield tag("text", words(label), class_=f"label line{numbers.index(label)}", x="100%", dx=6, y=above + 4)


class LossCurves(Picture):
    """The loss after each step."""

    required_arguments, final_argument_whitespace = 1, True

    def picture(self) -> tuple[str, str, str]:
        """Return the lines, and the caption below them."""
        rate, *delays = self.arguments[0].split()
        train = train_of(Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8"))
        losses = {f"k = {delay}": train(int(delay), float(rate)) for delay in delays}
        return drawn(losses, WORDS[language_of(self.env.docname)]), "\n".join(self.content), "losses"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("losses", LossCurves)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

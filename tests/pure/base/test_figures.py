"""Figures saved as files."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from matplotlib import rc_context
from matplotlib.figure import Figure

from pycoll.base.figures import BLUE, DARK, INK, PAPER, STYLE, image


@rc_context(STYLE)
def drawn():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2], color=BLUE)
    axes.set_title("title")
    return figure


def test_every_color_of_an_svg_has_one_for_dark_pages():
    text = image(drawn(), "svg").decode()
    elements, _, rules = text.partition("@media (prefers-color-scheme: dark)")
    used = set(re.findall(r"(?:fill|stroke): (#\w{6})", elements))
    assert {INK, PAPER, BLUE} <= used <= set(DARK)
    for color in used:
        assert f'[style*="fill: {color}"] {{ fill: {DARK[color]} !important }}' in rules
    ElementTree.fromstring(text)


def test_text_stays_text():
    assert ">title</text>" in image(drawn(), "svg").decode()


def test_the_same_each_time_and_of_each_kind():
    assert image(drawn(), "svg") == image(drawn(), "svg")
    assert image(drawn(), "png").startswith(b"\x89PNG") and image(drawn(), "pdf").startswith(b"%PDF")

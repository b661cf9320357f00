"""Curves of losses in a lesson: they are those of its program."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import losses

LESSONS = Path(__file__).resolve().parents[2] / "docs/lessons"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_program_of_the_lesson_makes_the_curves(language):
    """They end with the losses in the table of the lesson."""
    pytest.importorskip("numpy")
    text = (LESSONS / language / "parameter-server.md").read_text(encoding="utf-8")
    (rate, delays), (row,) = (
        re.findall(r"\{losses\} (\S+) (.*)", text)[0],
        re.findall(r"^ +0\.2 (.*\..*)", text, re.M)[-1:],
    )
    train = losses.train_of(text)
    curves = [train(int(delay), float(rate)) for delay in delays.split()]
    assert [f"{curve[-1]:.3g}" for curve in curves] == row.split()
    assert {len(curve) for curve in curves} == {100}


def test_labels_stand_at_the_ends_of_lines_and_not_on_each_other():
    picture = ElementTree.fromstring(losses.drawn({"a": [8, 1.0], "b": [8, 1.01], "c": [8, 100.0]}, ["loss", "step"]))
    height = {each.text: float(each.get("y")) for each in picture.iter("text") if "label" in each.get("class")}
    assert height["a"] == losses.HEIGHT + 4 and height["a"] - height["b"] >= losses.LINE and height["c"] == 4
    ends = [each.get("points").split()[-1] for each in picture.iter("polyline")]
    assert [float(end) for end in ends] == pytest.approx([losses.HEIGHT, losses.HEIGHT, 0], abs=1)


def test_a_page_without_the_program_is_an_error():
    with pytest.raises(ValueError, match="no program of the page defines train"):
        losses.train_of("```python\nprint(1)\n```\n")

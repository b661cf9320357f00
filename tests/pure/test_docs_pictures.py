"""Pictures in the guide: lanes of time, and what they say about the drivers."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import pictures

LINES = ["compute  F F . B", "", "send     . . G ."]


def test_equal_words_side_by_side_are_one_box():
    lanes = pictures.read("guide.md", LINES)
    assert lanes == {"compute": ["F", "F", ".", "B"], "send": [".", ".", "G", "."]}
    elements = [*ElementTree.fromstring(pictures.drawn(lanes)).iter()]
    boxes = [(each.get("x"), each.get("width")) for each in elements if each.tag == "rect"]
    assert boxes == [("0%", "50%"), ("75%", "25%"), ("50%", "25%")]
    assert [each.text for each in elements if each.tag == "text"] == ["compute", "F", "B", "send", "G"]


@pytest.mark.parametrize(
    "lines, problem",
    [
        ([*LINES, "wait . ."], "guide.md, lane 'wait': 2 units of time, but 4 in the first lane"),
        ([""], "guide.md: the picture has no lanes, or no units of time"),
    ],
)
def test_an_error_names_the_page_and_the_lane(lines, problem):
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        pictures.read("guide.md", lines)

"""Time charts of pipelines: text, pictures, the command line."""

import xml.etree.ElementTree as ET

import pytest

from pycoll.draw.__main__ import main
from pycoll.draw.language import speaking
from pycoll.draw.pipeline import LETTER, LINE, bars, svg, text
from pycoll.schedule.pipeline import SCHEDULES


def test_text():
    lines = text("1f1b", 2, 3).splitlines()
    assert lines[0] == "1f1b: 2 stages, 3 micro-batches"
    assert lines[1] == "bubble 25.0% of the time; activations kept by each stage: 2, 1"
    assert lines[3:5] == [
        "stage 0   F0 F1 .. .. B0 -- F2 B1 -- .. B2 --",
        "stage 1   .. F0 B0 -- F1 B1 -- F2 B2 -- .. ..",
    ]


@pytest.mark.parametrize("name", SCHEDULES)
def test_picture_has_all_work(name):
    chunks = 2 if name == "interleaved" else 1
    root = ET.fromstring(svg(name, 4, 8, chunks))
    hints = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")][1:]
    assert len(hints) == 4 * 8 * chunks * (3 if name == "zb-h1" else 2)
    assert set(hints) >= {f"forward of micro-batch {batch}, chunk 0" for batch in range(8)}


def test_no_line_is_cut_off():
    for name in SCHEDULES:
        root = ET.fromstring(svg(name, 2, 2, 2 if name == "interleaved" else 1))
        labels = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text") if each.get("class") == "label"]
        assert max(map(len, labels)) * LETTER < float(root.get("width"))
        assert max(map(len, text(name, 2, 2, 2 if name == "interleaved" else 1).splitlines())) <= LINE


def test_bars_in_chinese():
    with speaking("zh-CN"):
        drawn, width, height = bars("zb-h1", 2, 4)
    assert "阶段 1" in drawn and "前向传播" in drawn and "stage" not in drawn
    assert width > height > 0


def test_command(tmp_path, capsys):
    main(["pipeline", "--schedule", "gpipe", "-n", "2", "-m", "3"])
    assert capsys.readouterr().out == text("gpipe", 2, 3)
    main(["pipeline", "--schedule", "interleaved", "-o", str(tmp_path / "a.svg")])
    assert (tmp_path / "a.svg").read_text() == svg("interleaved", 4, 8, 2)
    assert capsys.readouterr().out == f"written to {tmp_path / 'a.svg'}\n"


@pytest.mark.parametrize(
    "given, error",
    [
        (["--schedule", "x"], "schedule 'x' is unknown"),
        (["-n", "0"], "the number of stages is 0"),
        (["-m", "65"], "-n and -m must be at most 64"),
        (["--schedule", "interleaved", "-m", "6"], "6 micro-batches are not a multiple of 4 stages"),
        (["-o", "a.png"], "-o a.png does not end in .svg"),
        (["-o", "nowhere/a.svg"], "nowhere/a.svg: no such directory"),
        (["-v", "0"], "the number of chunks is 0"),
    ],
)
def test_wrong_options(given, error, capsys):
    with pytest.raises(SystemExit):
        main(["pipeline", *given])
    assert error in capsys.readouterr().err

"""Pictures of topologies."""

import math
import re
from xml.etree import ElementTree

import pytest

from pycoll.base.links import Times, write
from pycoll.simulate.__main__ import main
from pycoll.simulate.picture import svg

NAMES = ["torus:4x4", "torus:8", "torus:2x3", "fat-tree:4x4:2", "dragonfly:5x4x2", "rails:3x4"]


def drawn(name):
    return [*ElementTree.fromstring(svg(name)).iter()]


def of_class(elements, name):
    return [each for each in elements if name in each.get("class", "").split()]


def texts(elements):
    return [each.text for each in elements if each.tag.endswith("text")]


@pytest.mark.parametrize(
    "name, ends, switches, links",
    [
        ("torus:4x4", 16, 0, 32),
        ("torus:8", 8, 0, 8),
        ("torus:2x3", 6, 0, 9),  # one link between two hosts
        ("fat-tree:4x4:2", 16, 5, 20),
        ("dragonfly:5x4x2", 40, 20, 40 + 5 * 6 + 10),
        ("rails:3x4", 12, 4, 24),
    ],
)
def test_it_has_all_hosts_switches_and_links(name, ends, switches, links):
    elements = drawn(name)
    assert len(of_class(elements, "end")) == ends and len(of_class(elements, "switch")) == switches
    assert len(of_class(elements, "link")) == links
    assert {str(number) for number in range(ends)} <= {*texts(elements)}


@pytest.mark.parametrize(
    "name, hops", [("torus:4x4", 2), ("fat-tree:4x4", 4), ("dragonfly:5x4x2", 5), ("rails:3x4", 4)]
)
def test_the_route_from_the_first_rank_to_the_last(name, hops):
    assert len(of_class(drawn(name), "route")) == hops


def test_the_width_of_a_link_is_its_bandwidth():
    widths = [float(each.get("stroke-width")) for each in of_class(drawn("fat-tree:4x4:2"), "link")]
    assert sorted(width / min(widths) for width in widths) == pytest.approx([1] * 16 + [2] * 4)


def test_a_graph(tmp_path):
    path = str(tmp_path / "links.json")
    times = [Times(0.0, 1e-9), Times(0.0, 2e-9)]
    write(path, {(host, (host + step) % 4): times[host % 2] for host in range(4) for step in (1, 3)})
    elements = drawn(path)
    assert len(of_class(elements, "end")) == 4 and len(of_class(elements, "link")) == 4
    assert len(of_class(elements, "route")) == 1


@pytest.mark.parametrize("name", NAMES)
def test_boxes_do_not_overlap_and_are_inside(name):
    elements = drawn(name)
    left, top, width, height = map(float, elements[0].get("viewBox").split())
    boxes = [[float(each.get(key)) for key in ("x", "y", "width", "height")] for each in of_class(elements, "end")]
    for number, (x, y, wide, high) in enumerate(boxes):
        assert left <= x and x + wide <= left + width and top <= y and y + high <= top + height
        assert all(math.hypot(x - other[0], y - other[1]) >= wide for other in boxes[:number])


@pytest.mark.parametrize(
    "name, problem",
    [
        ("torus:4x4x4", "a picture of a torus has one or two dimensions, not 3"),
        ("torus:9x9", "topology='torus:9x9' has 81 ranks; a picture shows 2 to 64"),
        ("ring:8", "topology='ring:8' is not one of"),
    ],
)
def test_what_has_no_picture(name, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        svg(name)


def test_the_command_writes_the_picture(tmp_path, capsys):
    path = tmp_path / "torus.svg"
    main(["--topology", "torus:4x4", "--draw", str(path)])
    assert path.read_text() == svg("torus:4x4") and capsys.readouterr().out == f"written to {path}\n"
    for wrong in (["--draw", str(path)], ["--topology", "torus:4x4", "--draw", str(tmp_path / "torus.png")]):
        with pytest.raises(SystemExit):
            main(wrong)
    assert "--draw" in capsys.readouterr().err and not (tmp_path / "torus.png").exists()

"""Pictures and sheets: each block has its place, each message its arrow, and colors have enough contrast."""

import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from itertools import combinations

import pytest

from pycoll.draw.bands import NARROW, WIDTH, bands
from pycoll.draw.frames import film
from pycoll.draw.layout import layout
from pycoll.draw.page import page, player
from pycoll.draw.sheet import sheet
from pycoll.draw.svg import Drawing
from pycoll.draw.text import text
from pycoll.schedule.cuts import per_rank
from pycoll.schedule.moves import Copy, Recv, Send
from pycoll.schedule.registry import PRIMITIVES, Algorithm, find

from .films import SVG, classes, each_algorithm, films


@each_algorithm
def test_every_needed_block_has_a_place_of_its_own(algorithm):
    for one in films(algorithm, 2, 5, 8):
        states = one.states()
        place = layout(one, states)
        for state, rows in zip(states, place.rows):
            for cells, row_of in zip(state, rows):
                assert {block for block, cell in cells.items() if cell.needed or cell.finished} <= set(row_of)
                drawn = [row_of[block] for block in cells if block in row_of]
                assert len(set(drawn)) == len(drawn) and max(drawn, default=0) < len(place.names)


@each_algorithm
def test_sheets_are_xml_with_an_arrow_for_each_message(algorithm):
    for one in films(algorithm, 1, 4, 8, segments=2):
        markup = sheet(one)
        root = ElementTree.fromstring(markup)
        frames = [group for group in root.iter(f"{SVG}g") if group.get("class") == "frame"]
        drawn = [sum(1 for line in frame.iter(f"{SVG}path") if line.get("marker-end")) for frame in frames]
        assert drawn == [len(frame.messages) for frame in one.frames]


def thicknesses(markup):
    return [float(one) for one in re.findall(r'class="arrow \w+"[^>]*stroke-width:([\d.]+)px', markup)]


def test_arrows_are_as_thick_as_their_messages_are_long():
    """Halving sends a half, a quarter and an eighth of the vector; a tree sends all of it."""
    halving = Drawing(film(find("reduce_scatter", "recursive_halving"), 8))
    half, quarter, eighth = (set(thicknesses(halving.frame(step))) for step in (1, 2, 3))
    (whole,) = set(thicknesses(Drawing(film(find("bcast", "tree"), 8)).frame(1)))
    assert half == {whole / 2} and quarter == {whole / 4} and max(eighth) < whole / 4
    assert "Z/4 bytes" in sheet(halving.film)


def heights(markup):
    """The heights of the blocks; every cell ends with its edge."""
    return {float(one) for one in re.findall(r'class="edge"[^>]*height="([\d.]+)"', markup)}


def test_blocks_of_films_beside_each_other_have_one_scale():
    """The whole vector is as high as its eight blocks, with the space between them, and half of it as four of them."""
    whole, halves, eighths = several = [
        film(find("bcast", name), 8, segments=2) for name in ("tree", "ring", "scatter_allgather")
    ]
    assert [one.parts for one in several] == [1, 2, 8]
    (low,) = heights(Drawing(eighths, several).frame(1))
    tops = Drawing(eighths).tops
    assert heights(Drawing(whole, several).frame(1)) == {tops[7] + low - tops[0]}
    assert heights(Drawing(halves, several).frame(1)) == {tops[3] + low - tops[0]}
    alone = {height for one in several for height in heights(Drawing(one).frame(1))}
    assert alone == {low}, "a film without others has rows as low as text allows"


def test_copies_of_the_vector_are_low_beside_a_film_with_many_parts():
    """The vector is as high as the eight parts of the ring; nine vectors would be nine times as high."""
    many, ring = several = [film(find("allreduce", name), 8) for name in ("recursive_multiplying:4", "ring")]
    drawing, other = (Drawing(one, several) for one in several)
    rows = len(drawing.heights)
    assert rows > 2 and drawing.heights == [sum(other.heights), *[other.heights[0]] * (rows - 1)]
    assert drawing.compact and not other.compact and not Drawing(many).compact
    note = "rows of copies of the vector are drawn lower"
    assert note in player(several) and note not in player([many]) + player([ring])


@each_algorithm
def test_eight_ranks_fit_beside_the_editor(algorithm):
    """It leaves 660 pixels for a film on a page 1280 wide, of which 16 are the margin."""
    for one in films(algorithm, 8):
        assert Drawing(one).width <= 644


def test_ranks_that_wait_are_hatched():
    """In a chain, ranks wait until the block comes; a rank that has sent it has finished, and does not wait."""
    for size in (4, 9):
        one = film(find("bcast", "ring"), size, segments=1)
        assert one.waiting[:3] == [set(), set(range(2, size)), set(range(3, size))] and one.waiting[-1] == set()
        pictures = page(one).partition("<section")[2].partition('class="keys"')[0]
        assert classes(pictures, "hatch") == sum(range(size - 1)) and "waiting rank" in sheet(one)
    assert "waiting rank" not in sheet(film(find("allreduce", "ring"), 4))


@each_algorithm
def test_pictures_stay_inside_their_frame(algorithm):
    for one in films(algorithm, 4, 8, segments=2):
        drawing = Drawing(one)
        markup = "".join(drawing.frame(index) for index in range(len(one.frames)))
        for path in re.findall(r' d="([^"]*)" pathLength', markup):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
            if "C" in path:
                left, base, _, handle, _, _, right, end = numbers
                x, y = [left, right], [base, end, (base + 3 * handle) / 4]  # the extreme point of the curve
            else:
                x, y = (re.findall(pattern, path) for pattern in (r"[ML](\S+)", r"[ML]\S+ ([\d.]+)|V([\d.]+)"))
                x, y = map(float, x), [float(one or other) for one, other in y]
            assert all(0 < each < drawing.width for each in x), path
            assert all(0 < each < drawing.height for each in y), path
        moved = re.findall(r'class="cell[^"]*" transform="translate\(([\d.]+) ([\d.]+)\)', markup)
        assert moved
        assert all(0 < float(x) < drawing.width and 0 < float(y) < drawing.height for x, y in moved)


def test_stripes_are_the_contributors_in_their_order():
    last = Drawing(film(find("reduce", "ring"), 3, segments=1)).frame(2)
    finished = re.search(r'<g class="cell new finished".*?</g>', last)[0]
    assert re.findall(r'class="by"[^>]*>(\d)<', finished) == ["0", "1", "2"]
    assert re.findall(r'<rect class="r(\d)"', finished) == ["0", "1", "2"]


def test_frames_around_hosts_and_around_each_part_of_one():
    halved = film(find("allgather", "two_level"), 6, hosts=(0, 0, 0, 1, 1, 1))
    mixed = film(find("allgather", "two_level"), 6, hosts=(0, 1, 1, 0, 0, 1))
    assert [classes(Drawing(one).frame(0), "host") for one in (halved, mixed)] == [2, 4]
    assert "2 hosts" in sheet(halved) and "Link of the busiest host, in one direction: 0.5 Z" in sheet(halved)


def test_many_ranks_become_a_matrix():
    one = film(find("scan", "tree"), 9)
    root = ElementTree.fromstring(sheet(one))
    columns = [group for group in root.iter(f"{SVG}g") if group.get("data-step")]
    says = [[line.text for line in column.iter(f"{SVG}text")] for column in columns]
    assert [column[0] for column in says] == ["start", "1", "2", "3", "4"]
    assert [column[1] for column in says] == [None, "\u21921", "\u21922", "\u21924", "\u21928"]
    assert says[4][9] == "+0"


def test_very_many_ranks_become_bands():
    """What all ranks do is one band, named by the distance to their partners; repeated steps are narrow."""
    ring = film(find("allreduce", "ring"), 32)
    assert [[band.text for band in bands(ring, index)] for index in (1, 32)] == [
        ["\u2192r+1 +r\u22121"],
        ["\u2192r+1 \u2190r\u22121"],
    ]
    doubling, swing = film(find("allreduce", "recursive_doubling"), 64), film(find("allreduce", "swing"), 32)
    assert [bands(doubling, step)[0].text for step in (1, 2, 6)] == [f"\u2192r^{n} +r^{n}" for n in (1, 2, 32)]
    assert [band.text for band in bands(swing, 3)] == ["\u2192r\u00b13 +r\u00b13"]
    tree = bands(film(find("bcast", "tree"), 32), 1)
    assert [(band.first, band.last, band.kind) for band in tree] == [
        (0, 0, "acts"),
        (1, 15, "hatch"),
        (16, 16, "acts"),
        (17, 31, "hatch"),
    ]
    widths = [float(rect.get("width")) for rect in ElementTree.fromstring(sheet(ring)).iter(f"{SVG}rect")]
    assert widths.count(NARROW - 2) == 60 and widths.count(WIDTH - 2) == 3


@each_algorithm
def test_every_rank_is_in_one_band(algorithm):
    for one in films(algorithm, 17, 24):
        for index in range(len(one.frames)):
            ranks = [rank for band in bands(one, index) for rank in range(band.first, band.last + 1)]
            assert ranks == [*range(one.size)]


def test_names_are_escaped():
    def odd(rank, size):
        """1 < 2 & "more".

        Source: <script>alert()</script>
        """
        yield Send(1 - rank, [rank]), Recv(1 - rank, [1 - rank])

    one = film(Algorithm(PRIMITIVES["allgather"], "<'odd'>", odd, per_rank, True, ("rank", "size")), 2)
    ElementTree.fromstring(sheet(one))
    assert "<script>alert" not in page(one) and "&lt;'odd'&gt; on 2 ranks</title>" in page(one)
    assert page(one).count('aria-label="allgather.&lt;&#x27;odd&#x27;&gt; on 2 ranks"') == 2


def test_blocks_of_any_name_are_drawn():
    def with_copies(rank, size):
        yield (Copy(rank, f"<{rank}>"),)
        yield Send(1 - rank, [f"<{rank}>"]), Recv(1 - rank, [f"<{1 - rank}>"])
        yield (Copy(f"<{1 - rank}>", 1 - rank),)

    one = film(Algorithm(PRIMITIVES["allgather"], "copying", with_copies, per_rank, True, ("rank", "size")), 2)
    assert [frame.title for frame in one.frames] == ["start", "on each rank", "step 1", "on each rank"]
    assert "[&lt;0&gt;]" in page(one) and "<0>" not in page(one) and "[<1>]" in text(one)
    ElementTree.fromstring(sheet(one))


def contrast(one, other):
    """Return the contrast ratio of two colors as defined by WCAG 2."""

    def luminance(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colors_can_be_read(theme):
    style = files("pycoll.draw").joinpath("drawing.css").read_text()
    blocks = style.split("prefers-color-scheme: dark")
    colors = dict(re.findall(r"--(\w+): (#\w{6})", blocks[theme == "dark"]))
    for name in ["paper", "tint", "tint2", *(f"r{rank}" for rank in range(8))]:
        assert contrast(colors["ink"], colors[name]) >= 4.5, name
    assert contrast(colors["soft"], colors["paper"]) >= 4.5
    assert all(contrast(colors[name], colors["paper"]) >= 3 for name in ("move", "combine", "done"))


INK = {"light": "#1b2430", "dark": "#e8edf3"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_tells_the_colors_of_ranks_apart(scheme):
    """Also those who see no red, no green or no blue; and numbers can be read on each color."""
    coloraide = pytest.importorskip("coloraide")
    blocks = files("pycoll.draw").joinpath("drawing.css").read_text().split("@media")
    colors = re.findall(r"--r\d: (#\w+)", blocks[scheme == "dark"])
    assert len(colors) == 8 and f"--ink: {INK[scheme]}" in blocks[scheme == "dark"]
    for kind in (None, "protan", "deutan", "tritan"):
        seen = [coloraide.Color(color) for color in colors]
        seen = [color.filter(kind, out_space="srgb").clip() if kind else color for color in seen]
        for one, other in combinations(seen, 2):
            assert one.delta_e(other, method="2000") >= 10, (kind, one, other)
    assert min(coloraide.Color(color).contrast(INK[scheme]) for color in colors) >= 4.5

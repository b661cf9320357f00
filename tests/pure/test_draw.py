"""Drawings against the proof: what is seen is what was counted; sheets, pages and the guide are whole."""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from pycoll.draw.__main__ import main
from pycoll.draw.frames import film
from pycoll.draw.gallery import COMPARISONS, Setting, guide, halves
from pycoll.draw.layout import layout
from pycoll.draw.markup import VOID
from pycoll.draw.names import by_rank
from pycoll.draw.page import page, player
from pycoll.draw.sheet import sheet
from pycoll.draw.svg import Drawing
from pycoll.draw.text import text
from pycoll.proof import ProofError, prove
from pycoll.schedule import PRIMITIVES, Algorithm, Copy, Recv, Send, algorithms_of, counts_of, find, per_rank

ALGORITHMS = [algorithm for name in PRIMITIVES for algorithm in algorithms_of(name).values()]
SVG = "{http://www.w3.org/2000/svg}"
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)


def films(algorithm, *sizes, segments=3):
    for size in sizes:
        root = size - 1 if algorithm.primitive.rooted else 0
        yield film(algorithm, size, root, segments, halves(size) if algorithm.knows_hosts else None)


def classes(markup, name):
    """How many elements have that class."""
    return sum(name in found.split() for found in re.findall(r'class="([^"]*)"', markup))


# Frames against the proof


@each_algorithm
def test_frames_have_what_the_proof_counts(algorithm):
    for one in films(algorithm, 1, 2, 3, 4, 7, 8, 13):
        counts = prove(algorithm, one.size, one.root, 3, hosts=one.hosts)
        messages = [message for frame in one.frames for message in frame.messages]
        numbers = Counter(message.source for message in messages)
        sent, received, combined = Counter(), Counter(), Counter()
        for message in messages:
            sent[message.source] += len(message.blocks)
            received[message.to] += len(message.blocks)
            combined[message.to] += len(message.blocks) * message.combined
        assert [numbers[rank] for rank in range(one.size)] == counts.messages
        assert [sent[rank] for rank in range(one.size)] == counts.sent
        assert [received[rank] for rank in range(one.size)] == counts.received
        if not any(frame.local for frame in one.frames):
            assert [combined[rank] for rank in range(one.size)] == counts.combined
        assert [frame.step for frame in one.frames if not frame.local] == list(range(counts.rounds + 1))


@each_algorithm
def test_the_last_frame_has_all_that_is_promised(algorithm):
    for one in films(algorithm, 1, 2, 3, 5, 8):
        states = one.states()
        for rank, cells in enumerate(states[-1]):
            assert one.wanted[rank] <= set(cells)
            assert all(cells[block].finished for block in one.wanted[rank])
        if one.size > 1 and algorithm.primitive.name != "scan":
            assert not all(
                block in states[0][rank] and states[0][rank][block].finished
                for rank in range(one.size)
                for block in one.wanted[rank]
            )


@each_algorithm
def test_what_arrives_was_there_before(algorithm):
    """Between two frames blocks change by messages alone, and messages bring what their source held."""
    for one in films(algorithm, 4, 5):
        before = [dict(held) for held in next(one.held())]
        for frame, held in zip(one.frames, one.held()):
            for message in frame.messages:
                for block in message.blocks:
                    sent, now = before[message.source][block], held[message.to][block]
                    assert set(sent.contributors) <= set(now.contributors)
                    assert message.combined or now == sent
            brought = {(message.to, block) for message in frame.messages for block in message.blocks}
            if frame.step and not frame.local and not one.hears:
                assert {(rank, block) for rank, written in frame.written.items() for block in written} == brought
            before = [dict(blocks) for blocks in held]


def test_watching_changes_no_counts():
    algorithm = find("allreduce", "double_tree")
    seen = []
    assert prove(algorithm, 6, segments=2, watch=seen.append) == prove(algorithm, 6, segments=2)
    assert [one.rank for one in seen[:6]] == list(range(6)) and not any(one.moves for one in seen[:6])
    assert seen[0].written[0].contributors == (0,)


def test_bytes_are_multiples_of_the_vector_and_counts_stand_beside_them():
    one = film(find("scatterv", "tree"), 4)
    assert by_rank(one, lambda counts: counts.sent) == ["0.75 Z + 64 B", "0", "0.25 Z + 32 B", "0"]
    assert [counts_of(0) in written for written in one.frames[1].written.values()] == [False, True]


def test_blocks_are_needed_until_their_last_use():
    states = film(find("reduce", "tree"), 4).states()
    assert [cells[0].needed for cells in states[0]] == [True] * 4
    assert [cells[0].needed for cells in states[1]] == [True, False, True, False]
    assert [cells[0].needed for cells in states[2]] == [True, False, False, False]


def test_a_schedule_that_is_wrong_is_not_drawn():
    def too_little(rank, size):
        yield from ()

    with pytest.raises(ProofError, match="without block"):
        film(Algorithm(PRIMITIVES["allgather"], "wrong", too_little, per_rank, True, ("rank", "size")), 2)


# Pictures


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


@each_algorithm
def test_pictures_stay_inside_their_frame(algorithm):
    for one in films(algorithm, 4, 8, segments=2):
        drawing = Drawing(one)
        markup = "".join(drawing.frame(index) for index in range(len(one.frames)))
        for path in re.findall(r' d="([^"]*)" pathLength', markup):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
            if "C" in path:
                left, base, _, handle, _, _, right, end = numbers
                x, y = [left, right], [base, end, (base + 3 * handle) / 4]  # as far out as the curve comes
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
    assert "2 hosts" in sheet(halved) and "link, one way: 0.5 Z" in sheet(halved)


def test_many_ranks_become_a_matrix():
    one = film(find("scan", "tree"), 9)
    root = ElementTree.fromstring(sheet(one))
    columns = [group for group in root.iter(f"{SVG}g") if group.get("data-step")]
    says = [[line.text for line in column.iter(f"{SVG}text")] for column in columns]
    assert [column[0] for column in says] == ["start", "1", "2", "3", "4"]
    assert [column[1] for column in says] == [None, "\u21921", "\u21922", "\u21924", "\u21928"]
    assert says[4][9] == "+0"


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
    """The ratio of WCAG 2 between two colours."""

    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_read(theme):
    style = files("pycoll.draw").joinpath("drawing.css").read_text()
    blocks = style.split("prefers-color-scheme: dark")
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[theme == "dark"]))
    for name in ["paper", "tint", "tint2", *(f"r{rank}" for rank in range(8))]:
        assert contrast(colours["ink"], colours[name]) >= 4.5, name
    assert contrast(colours["soft"], colours["paper"]) >= 4.5
    assert all(contrast(colours[name], colours["paper"]) >= 3 for name in ("move", "combine", "done"))


# Text

RING = """\
allreduce.ring on 2 ranks
A ring reduce-scatter, then a ring all-gather: the least bytes any all-reduce can send.

Rounds: 2  [2*(p-1)]
Messages: 2 a rank  [2*(p-1)]
Sent: Z a rank  [2*(p-1)/p*Z]
Received: Z a rank  [2*(p-1)/p*Z]
Cost: 2*alpha + Z*beta + 0.5*Z*gamma  [2*(p-1)*alpha + 2*(p-1)/p*Z*beta + (p-1)/p*Z*gamma]

start
          rank 0  rank 1
  part 0  0       1
  part 1  0       1

step 1: 0>1 [+1], 1>0 [+0]
          rank 0  rank 1
  part 0  0+1*    (1)
  part 1  (0)     1+0*

step 2: 0>1 [0], 1>0 [1]
          rank 0  rank 1
  part 0  0+1*    0+1*
  part 1  1+0*    1+0*

0>1 [+2]: part 2 is combined on arrival; 0+1: whose contributions, in order; *: finished; (brackets): no longer needed.
"""


def test_text(capsys):
    main(["allreduce", "--algorithm", "ring", "-n", "2"])
    assert capsys.readouterr().out == RING


def test_text_of_a_barrier_says_who_has_heard_of_whom():
    lines = text(film(find("barrier", "dissemination"), 3)).splitlines()
    step = lines.index("step 1: 0>1, 1>2, 2>0")
    assert lines[step + 2 : step + 5] == ["  of 0  0       0", "  of 1          1       1", "  of 2  2               2"]


def test_text_of_many_ranks_is_a_matrix():
    lines = text(film(find("bcast", "tree"), 9)).splitlines()
    rows = [line.split() for line in lines if line.startswith("  rank ")]
    assert rows[0] == ["rank", "0", ">5*", ">3*", ">2*", ">1*"]
    assert rows[5] == ["rank", "5", "<0*", ">7*", ">6*", "*"]


@each_algorithm
def test_text_is_ascii(algorithm):
    for one in films(algorithm, 3, 9, segments=2):
        assert text(one).isascii() and "Rounds" in text(one)


# Pages


class Checker(HTMLParser):
    """Links and frames of a page; AssertionError where an end does not match."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.links, self.steps = [], [], Counter()
        self.feed(markup)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.open += [] if tag in VOID else [tag]
        self.links += [given[name] for name in ("src", "href", "action", "srcset", "data") if name in given]
        self.steps.update([int(given["data-step"])] if "data-step" in given else [])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@each_algorithm
def test_pages_are_whole_and_need_no_network(algorithm):
    for one in films(algorithm, 3, 9, segments=2):
        markup = page(one)
        checked = Checker(markup)
        assert set(checked.links) <= {"data:,"}
        assert "://" not in markup
        assert set(checked.steps) == set(range(len(one.frames)))
        assert markup.count("<script>") == 1 and "keydown" in markup


def test_players_run_to_the_end_of_the_longest():
    two = [film(find("allreduce", name), 4) for name in ("tree", "ring")]
    assert f'data-last="{len(two[1].frames) - 1}"' in player(two)
    assert classes(player(two), "film") == 2


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        try:
            chromium = started.chromium.launch(executable_path=shutil.which("chromium"))
        except playwright.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


@pytest.mark.parametrize("size", [4, 9])
def test_a_browser_plays_and_steps(browser, size, tmp_path):
    (tmp_path / "ring.html").write_text(page(film(find("allreduce", "ring"), size)), encoding="utf-8")
    window, errors = browser.new_page(), []
    window.on("pageerror", lambda error: errors.append(error))
    window.on("console", lambda message: errors.append(message.text))
    window.on("request", lambda request: errors.append(request.url) if request.url.startswith("http") else None)
    last = 2 * (size - 1)

    def now():
        shown = window.locator("[data-step].now")
        steps = {
            shown.nth(place).get_attribute("data-step")
            for place in range(shown.count())
            if shown.nth(place).is_visible()
        }
        assert window.locator("output").inner_text() == f"{min(steps)} / {last}" and len(steps) == 1
        return int(steps.pop())

    window.goto((tmp_path / "ring.html").as_uri() + "#2")
    seen = [now()]
    for key in ("ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"):
        window.keyboard.press(key)
        seen.append(now())
    assert seen == [2, 3, 2, last, last, 0, 0]
    for button in ("next", "next", "back", "last", "first"):
        window.click(f"[data-do={button}]")
        seen.append(now())
    assert seen[7:] == [1, 2, 1, last, 0]
    window.select_option("select", "4")
    window.locator("h1").click()
    window.keyboard.press("Space")
    window.wait_for_function("document.querySelector('output').textContent.startsWith('2 ')")
    window.keyboard.press("Space")
    stopped = now()
    window.wait_for_timeout(800)
    assert now() == stopped and not errors
    window.close()


# The guide


@pytest.fixture(scope="module")
def site():
    return dict(guide(Setting(4, 1, 2)))


def test_the_guide_has_every_algorithm(site):
    for algorithm in ALGORITHMS:
        stem = f"{algorithm.primitive.name}-{algorithm.name}"
        assert f'href="{stem}.html"' in site["index.html"] and f'src="{stem}.svg#steps"' in site["index.html"]
        assert f"def {algorithm.generator.__name__}(" in site[f"{stem}.html"]
        ElementTree.fromstring(site[f"{stem}.svg"])
    for comparison in COMPARISONS:
        assert classes(site[comparison.file], "film") == len(comparison.algorithms)


def test_no_link_of_the_guide_leads_nowhere(site):
    pages = {name: Checker(content) for name, content in site.items() if name.endswith(".html")}
    reached = set()
    for name, checked in pages.items():
        for link in checked.links:
            file, _, fragment = link.partition("#")
            if link != "data:,":
                assert (file or name) in site, f"{name} refers to {link}"
                found = set(re.findall(r' id="([^"]*)"', site[file or name]))
                assert not fragment or fragment in found, f"{name} refers to {link}"
                reached.add(file)
    assert reached >= set(site)


def test_the_guide_is_written(site, tmp_path, capsys):
    main(["--all", "-n", "2", "-o", str(tmp_path / "new" / "guide")])
    written = {path.name for path in (tmp_path / "new" / "guide").iterdir()}
    assert written == set(site)
    assert "index.html" in capsys.readouterr().out


# The command line


def test_files(tmp_path):
    for name in ("ring.svg", "ring.html"):
        main(["bcast", "--algorithm", "ring", "-n", "3", "--root", "2", "--segments", "4", "-o", str(tmp_path / name)])
        content = (tmp_path / name).read_text(encoding="utf-8")
        assert "bcast.ring on 3 ranks, root 2, 4 segments" in content
    main(["allreduce", "--algorithm", "two_level", "--hosts", "0,1,0,1", "-o", str(tmp_path / "hosts.svg")])
    assert classes((tmp_path / "hosts.svg").read_text(encoding="utf-8"), "host") == 4 * 5


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ("", "no primitive is named; there are: bcast, "),
        ("allredcue --algorithm ring", "primitive 'allredcue' is not known; there are: bcast, "),
        ("allreduce", "no --algorithm is named; there are: naive, tree, ring, "),
        ("allreduce --algorithm rong", "--algorithm 'rong' is not one of allreduce's; there are: naive, "),
        ("allreduce --algorithm native", "--algorithm 'native' is not one of allreduce's"),
        ("allreduce --algorithm ring -n 0", "-n 0 is not from 1 to 64"),
        ("allreduce --algorithm ring -n 65", "-n 65 is not from 1 to 64"),
        ("allreduce --algorithm ring -n four", "argument -n/--ranks: invalid int value: 'four'"),
        ("bcast --algorithm ring --root 4", "--root 4 is not one of 4 ranks: 0 to 3"),
        ("bcast --algorithm ring --root -1", "--root -1 is not one of 4 ranks"),
        ("allreduce --algorithm ring --root 0", "--root 0: allreduce has no root"),
        ("allreduce --algorithm ring --segments 2", "--segments 2: allreduce.ring is not pipelined"),
        ("bcast --algorithm ring --segments 0", "--segments 0 is not from 1 to 64"),
        ("allreduce --algorithm two_level --hosts 0,1", "--hosts 0,1 names 2 hosts for 4 ranks"),
        ("allreduce --algorithm two_level --hosts a,b", "--hosts 'a,b' is not a list of numbers"),
        ("allreduce --algorithm ring -o ring.png", "-o ring.png does not end in .svg or .html"),
        ("allreduce --algorithm ring -o no/such/ring.svg", "-o no/such/ring.svg: No such file or directory"),
        ("--all", "--all needs -o and a folder"),
        ("--all allreduce -o guide", "--all draws everything: leave out 'allreduce'"),
        ("--all --root 4 -o guide", "--root 4 is not one of 4 ranks"),
    ],
)
def test_errors_are_one_line(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.startswith(f"python -m pycoll.draw: {complaint}") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_draws_where_there_is_no_mpi(tmp_path):
    program = (
        "import runpy, sys; sys.modules['mpi4py'] = sys.modules['numpy'] = None; "
        "sys.argv = ['draw', 'scan', '-a', 'tree', '-o', sys.argv[1]]; "
        "runpy.run_module('pycoll.draw', run_name='__main__')"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "scan.html")], check=True, timeout=60)
    assert "scan.tree on 4 ranks" in (tmp_path / "scan.html").read_text(encoding="utf-8")

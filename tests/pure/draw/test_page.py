"""Pages and the guide: complete markup, no network access, no broken links, and playback in a browser."""

import re
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser

import pytest

from pycoll.draw.__main__ import main
from pycoll.draw.frames import film
from pycoll.draw.gallery import COMPARISONS, Setting, guide
from pycoll.draw.markup import VOID
from pycoll.draw.page import BUTTONS, document, page, player, scripts
from pycoll.schedule.registry import find
from tests.quick import quick

from .films import ALGORITHMS, SVG, classes, each_algorithm, films


class Checker(HTMLParser):
    """Collect the links and steps of a page; raise AssertionError if a tag is not closed."""

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


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        try:
            chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


def test_two_films_run_on_one_clock(browser, tmp_path):
    """After a time, one of them is further than the other, and the last moment is the end of the slower one."""
    two = [film(find("allreduce", name), 4) for name in ("tree", "ring")]
    clocks = [
        [float(10 * frame) for frame in range(len(two[0].frames))],
        [float(frame) for frame in range(len(two[1].frames))],
    ]
    ends = [clock[-1] for clock in clocks]
    (tmp_path / "two.html").write_text(document("two", player(two, clocks), scripts()), encoding="utf-8")
    window = browser.new_page()
    window.goto((tmp_path / "two.html").as_uri())

    def frames():
        return [
            int(window.locator(".film").nth(each).locator("[data-step].now").first.get_attribute("data-step"))
            for each in range(2)
        ]

    def said():
        return window.locator("output").inner_text()

    moments = len({*clocks[0], *clocks[1]}) - 1
    assert frames() == [0, 0] and said() == f"0 / {moments} \u00b7 0.0 \u00b5s"
    window.keyboard.press("ArrowRight")
    window.wait_for_function("document.querySelector('output').textContent.startsWith('1 ')")
    assert frames() == [1, 1], "the tree is in its first frame, of which the ring has ended"
    share = window.locator(".film").first.locator(".now").first.evaluate("one => one.style.getPropertyValue('--share')")
    assert float(share) == 0.1
    for _ in range(4):  # faster than a step is drawn
        window.keyboard.press("ArrowRight")
    window.wait_for_function("document.querySelector('output').textContent.startsWith('5 ')")
    window.keyboard.press("End")
    assert frames() == [len(one.frames) - 1 for one in two] and f"{max(ends) * 1e6:.1f} \u00b5s" in said()
    window.keyboard.press("ArrowLeft")
    assert frames() == [len(two[0].frames) - 2, len(two[1].frames) - 1]
    assert [window.locator(".film").nth(each).evaluate("one => one.className") for each in range(2)] == [
        "film",
        "film ended",
    ]
    window.locator("input").fill("500")
    assert f"{max(ends) * 5e5:.1f} \u00b5s" in said()
    window.close()


@pytest.mark.parametrize("width", [390, 900, 1600])
def test_two_films_have_one_scale(browser, width, tmp_path):
    """On the screen, the vector of the one is as high as the first to the last part of the other."""
    two = [film(find("allreduce", name), 8) for name in ("naive", "ring")]
    (tmp_path / "two.html").write_text(document("two", player(two), scripts()), encoding="utf-8")
    window = browser.new_page(viewport={"width": width, "height": 500})
    window.goto((tmp_path / "two.html").as_uri())
    heights = []
    for each in range(2):
        blocks = window.locator(".film").nth(each).locator(".now .cell .edge")
        boxes = blocks.evaluate_all("all => all.map((one) => one.getBoundingClientRect())")
        heights.append(max(box["bottom"] for box in boxes) - min(box["top"] for box in boxes))
    assert heights[0] == pytest.approx(heights[1])
    window.close()


@pytest.mark.parametrize("size", quick(4, 9))
def test_a_browser_plays_and_steps(browser, size, tmp_path):
    (tmp_path / "ring.html").write_text(page(film(find("allreduce", "ring"), size)), encoding="utf-8")
    window, errors = browser.new_page(), []
    window.on("pageerror", lambda error: errors.append(error))
    window.on("console", lambda message: errors.append(message.text))
    window.on("request", lambda request: errors.append(request.url) if request.url.startswith("http") else None)
    last = 2 * (size - 1)

    def now():
        window.wait_for_timeout(600)  # a step is drawn slowly
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
    stopped = window.locator("output").inner_text()
    window.wait_for_timeout(1000)
    assert window.locator("output").inner_text() == stopped and not errors
    window.close()


def test_a_browser_exports_the_moment_and_the_film(browser, tmp_path):
    """The picture is whole, in the colors of the page; the video is offered if the browser can write it, GIF never."""
    one = film(find("allreduce", "ring"), 3)
    (tmp_path / "ring.html").write_text(page(one), encoding="utf-8")
    window = browser.new_page(color_scheme="dark")
    window.goto((tmp_path / "ring.html").as_uri() + "#2")

    def saved(kind, press):
        with window.expect_download() as download:
            press(f"[data-save={kind}]")
        return download.value.suggested_filename, download.value.path().read_bytes()

    name, content = saved("svg", lambda button: window.press(button, "Enter"))
    picture = ElementTree.fromstring(content)
    texts = [text for element in picture.iter(f"{SVG}text") for text in element.itertext()]
    assert name == "allreduce.ring-on-3-ranks.svg" and "allreduce.ring on 3 ranks" in texts and "step 2" in texts
    assert sum(bool(path.get("marker-end")) for path in picture.iter(f"{SVG}path")) == len(one.frames[2].messages)
    assert b"var(--paper)" not in content and b"fill: #14191f" in content.replace(b"rgb(20, 25, 31)", b"#14191f")
    assert window.locator("[data-save=gif]").is_hidden()
    window.select_option("select", "4")
    window.press("body", "End")
    if window.locator("[data-save=video]").is_visible():
        name, content = saved("video", window.click)
        assert name.endswith((".webm", ".mp4")) and len(content) > 1000
    window.close()


# The guide


@pytest.fixture(scope="module")
def site():
    return dict(guide(Setting(4, 1, 2)))


def test_the_guide_has_every_algorithm(site):
    for algorithm in ALGORITHMS:
        stem = algorithm.stem
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


def test_the_buttons_need_no_font():
    text = player([film(find("bcast", "tree"), 4)])
    assert text.count('<svg viewBox="0 0 16 16"') == len(BUTTONS)
    assert not set("\u23ee\u25c0\u25b6\u23ed\u23f8") & set(text)

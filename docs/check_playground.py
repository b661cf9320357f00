"""Use the playground as a person would: ``python docs/check_playground.py SITE [--pictures FOLDER]``.

SITE is the folder of a built site.  This needs the package `playwright` and Chromium; --browser names its program.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

IGNORED = ("favicon.ico", "theme mode")  # of the theme: it stores no mode before the first choice
PATIENCE = 90_000  # milliseconds
LEAST = 11  # pixels of text
SIZES_OF_TEXT = """texts => texts.map((text) => {
    const { b, d } = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(b, d);
})"""
TIMED = """(slider, [start, end]) => new Promise((done) => {
    const reached = (value) => new Promise((there) => {
        const look = (now) => (slider.value < value ? requestAnimationFrame(look) : there(now));
        requestAnimationFrame(look);
    });
    reached(start).then((began) => reached(end).then((ended) => done(ended - began)));
})"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A server whose clients may leave while it answers, as after a reload."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/playground.html"
        server.shutdown()


class Visitor:
    """A person on the page."""

    def __init__(self, page: Page) -> None:
        self.page, self.frame = page, page.frame_locator("#playground iframe")
        page.set_default_timeout(PATIENCE)
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        where = f"{message.text} {message.location.get('url', '')}"
        if message.type == "error" and not any(each in where for each in IGNORED):
            self.errors.append(where)

    def _asked(self, request: Any) -> None:
        if request.url.startswith("http") and "//127.0.0.1:" not in request.url:
            self.errors.append(f"{request.url} is on another server")

    def sees(self, title: str, films: int = 1) -> None:
        """Wait until the page plays this."""
        self.frame.locator("html.js h1", has_text=title).wait_for()  # the script of the frame runs
        assert self.frame.locator(".film").count() == films, title

    def reads(self, text: str) -> None:
        """Wait for a message."""
        self.page.locator("#playground output", has_text=text).wait_for()

    def types(self, before: str, after: str) -> None:
        """Change the algorithm."""
        source = self.page.input_value("[name=source]")
        assert before in source, before
        self.page.locator("#playground .cm-content").fill(source.replace(before, after))

    def clicks(self, name: str) -> None:
        """Scroll to a button, and click it when Chromium has drawn it there; before, clicks may go to the frame."""
        button = self.page.locator(f"[name={name}]")
        button.scroll_into_view_if_needed()
        self.page.wait_for_timeout(500)
        button.click()

    def sets(self, name: str, number: int) -> None:
        """Change a number."""
        self.page.fill(f"[name={name}]", str(number))
        self.page.press(f"[name={name}]", "Enter")


def visit(visitor: Visitor, address: str) -> None:
    """Use every control."""
    page = visitor.page
    arrives(visitor, address)
    waits(visitor, address)
    began = time.perf_counter()
    page.goto(address)
    visitor.sees("allreduce.ring on 8 ranks")
    loaded, played = (f"performance.getEntriesByName('{name}').at(-1).startTime" for name in ("loaded", "played"))
    seconds = page.evaluate(f"({played} - {loaded}) / 1000")
    print(
        f"allreduce.ring on 8 ranks {time.perf_counter() - began:.1f} s after the start, {seconds:.1f} s after loading"
    )
    page.select_option("[name=beside]", "recursive_doubling")
    visitor.sees("allreduce.ring and allreduce.recursive_doubling", films=2)
    page.select_option("[name=beside]", "")
    visitor.sees("allreduce.ring on 8 ranks")
    speeds(visitor)
    plays(visitor)
    races(visitor)
    exports(visitor)
    solves(visitor)
    links(visitor)
    simulates(visitor)
    page.select_option("[name=primitive]", "bcast")
    page.select_option("[name=algorithm]", "two_level")
    for name, number in (("ranks", 6), ("root", 5), ("segments", 3), ("per_host", 3)):
        visitor.sets(name, number)
    visitor.sees("bcast.two_level on 6 ranks, root 5, 3 segments, 2 hosts")
    visitor.sets("ranks", 3)
    visitor.sees("bcast.two_level on 3 ranks, root 2, 3 segments, 1 host")
    page.select_option("[name=primitive]", "allgather")
    page.select_option("[name=algorithm]", "ring")
    visitor.sees("allgather.ring on 3 ranks")
    page.wait_for_function("!document.querySelector('#playground output').textContent")
    visitor.types("+ 1) % size", "+ 2) % size")
    visitor.reads("rank")
    assert "yield Send" in page.locator("#playground .cm-line.failing").inner_text(), "the line that fails is marked"
    assert "stale" in (page.locator("#playground iframe").get_attribute("class") or ""), "the film is an old one"
    page.select_option("[name=algorithm]", "tree")
    visitor.sees("allgather.tree on 3 ranks")
    shown = page.input_value("[name=source]")
    page.locator("#playground .cm-content").press("Control+z")
    assert page.input_value("[name=source]") == shown, "the change belongs to another algorithm"
    page.select_option("[name=algorithm]", "ring")
    visitor.reads("rank")
    assert "+ 2) % size" in page.input_value("[name=source]"), "the change is kept"
    picture, said = (
        page.locator("#playground figure.waiting"),
        "document.querySelector('#playground output').textContent",
    )
    assert page.locator("#playground .cm-line .tok-keyword").count() > 3, "the code is highlighted"
    page.locator("#playground .cm-content").press("Control+z")
    assert "+ 2) % size" in page.input_value("[name=source]"), "a change before it was shown again is not undone"
    visitor.clicks("reset")
    page.wait_for_function(f"!{said}")
    assert picture.is_hidden(), "no rank waits"
    visitor.types("size - 1", "size - 2")
    visitor.reads("ends without block")
    page.locator("#playground .cm-content").press("Control+z")
    page.wait_for_function(f"!{said}")
    assert "size - 2" not in page.input_value("[name=source]"), "the change is undone"
    visitor.types(
        "), Recv(left, [(rank - step - 1) % size])", "),\n        yield Recv(left, [(rank - step - 1) % size]),"
    )
    visitor.reads("deadlock: rank 0 waits for rank 1")
    assert picture.locator(".rank.cycle").count() == 2, "both ranks of the deadlock are drawn"
    visitor.clicks("reset")
    page.wait_for_function("!document.querySelector('#playground output').textContent")
    visitor.types("range(size - 1)", "range(size-1)")
    visitor.reads("Proved for 1 to 32 ranks.")
    link = page.url
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.clicks("copy")
    visitor.reads("The link is copied.")
    assert page.evaluate("navigator.clipboard.readText()") == link
    visitor.types("right, left =", "while True: pass\n    right, left =")
    visitor.reads("It took too long, and was stopped.")
    page.goto("about:blank")
    page.goto(link)
    visitor.reads("Proved for 1 to 32 ranks.")
    assert "range(size-1)" in page.input_value("[name=source]"), "the link has not kept the change"
    visitor.sees("allgather.ring on 3 ranks")
    visitor.frame.locator("output", has_text="0 / 2").wait_for()
    visitor.frame.locator("[data-do=next]").press("ArrowRight")
    visitor.frame.locator("output", has_text="1 / 2").wait_for()


def waits(visitor: Visitor, address: str) -> None:
    """See a film of the build as long as the Python runtime has not come, in the language of the page."""
    page, asked = visitor.page, []
    page.route("**/python_stdlib.zip", lambda route: asked.append(route))
    for name, language, text in (
        ("playground.html", "en", "Loading"),
        ("zh/playground.html", "zh-CN", "正在加载"),
    ):
        page.goto(address.replace("playground.html", name))
        visitor.reads(text)
        visitor.frame.locator(f"html[lang={language}] .frames .now svg").wait_for()
        while not asked:
            page.wait_for_timeout(100)
        for route in asked:
            route.abort()
        asked.clear()
        page.wait_for_function(
            "text => !document.querySelector('#playground output').textContent.includes(text)", arg=text
        )
    page.unroute("**/python_stdlib.zip")
    visitor.errors.clear()
    page.goto("about:blank")


def fits(visitor: Visitor) -> None:
    """All ranks are in sight, and all text is large enough."""
    figures = visitor.frame.locator("figure:visible")
    for figure in figures.all():
        assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth"), "a film is too wide"
    for least in figures.locator("text").evaluate_all(SIZES_OF_TEXT):
        assert least > LEAST - 0.05, f"text of {least} pixels"


def races(visitor: Visitor) -> None:
    """Two films run on one clock: when the ring has ended, the server is not yet there."""
    page, frame = visitor.page, visitor.frame
    page.select_option("[name=algorithm]", "ring")
    page.select_option("[name=beside]", "recursive_multiplying:4")
    visitor.sees("allreduce.ring and allreduce.recursive_multiplying:4 on 8 ranks", films=2)
    for figure in frame.locator("figure:visible").all():
        assert figure.bounding_box()["height"] < 800, "a film is too high"
    page.select_option("[name=beside]", "naive")
    visitor.sees("allreduce.ring and allreduce.naive on 8 ranks", films=2)
    fits(visitor)
    frame.locator("input[type=range]").fill("500")  # in a message of the server
    dashes = "lines => lines.map((line) => Number(getComputedStyle(line).strokeDashoffset.match(/[\\d.]+/)))"
    filled = frame.locator(".film:not(.ended) .now .arrow").evaluate_all(dashes)
    assert filled and all(0 < each < 1 for each in filled), "the link of a message fills while the message is sent"
    frame.locator("[data-do=first]").click()
    frame.locator("select").select_option("4")
    frame.locator("[data-do=play]").click()
    frame.locator(".film.ended h2", has_text="allreduce.ring").wait_for()
    assert frame.locator(".film.ended").count() == 1, "the server is slower"
    frame.locator("body").press("End")
    frame.locator(".film.ended h2", has_text="allreduce.naive").wait_for()
    page.select_option("[name=beside]", "")
    visitor.sees("allreduce.ring on 8 ranks")


def arrives(visitor: Visitor, address: str) -> None:
    """Begin at the first page: a film that moves, in the colors of the site, and a link to the playground."""
    page = visitor.page
    page.goto(address.replace("playground.html", "index.html"))
    film = page.frame_locator("iframe.film")
    for step in (0, 1):
        film.locator(f".frames .now[data-step='{step}']").wait_for()
    for theme, scheme in (("dark", "dark"), ("light", "light")):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        film.locator(f"html[style*='color-scheme: {scheme}']").wait_for()
    page.locator(".way a", has_text="Play").click()
    page.wait_for_url("**/playground.html")


def speeds(visitor: Visitor) -> None:
    """At the fourfold speed, a film takes a quarter of the time for the same part of its clock."""
    frame, took = visitor.frame, {}
    slider = frame.locator("input[type=range]")
    for speed in (1, 4):
        frame.locator("select").select_option(str(speed))
        frame.locator("[data-do=play]").click()
        took[speed] = slider.evaluate(TIMED, [50, 400])  # of 1000
        frame.locator("[data-do=first]").click()
    assert 2.5 < took[1] / took[4] < 6, took


def plays(visitor: Visitor) -> None:
    """Use the controls of the films: play, loop, step, scrub; and keep the frame in the link."""
    page, frame = visitor.page, visitor.frame
    place, marked = frame.locator("output"), frame.locator(".code").first.locator(".now")
    frame.locator("[data-do=next]").click()
    place.filter(has_text="1 / 14").wait_for()
    assert marked.get_attribute("data-ranks") == "all ranks" and "yield" in marked.inner_text()
    first = marked.get_attribute("data-line")
    frame.locator("input[type=range]").fill(
        "700"
    )  # of 1000: in the ninth of 14 rounds, of which the first seven take longer
    place.filter(has_text="8 / 14").wait_for()
    assert marked.get_attribute("data-line") != first, "the all-gather has a line of its own"
    page.wait_for_function("location.hash.includes('frame%22%3A8')")
    page.reload()
    place.filter(has_text="8 / 14").wait_for()
    frame.locator("select").select_option("4")
    frame.locator("[data-do=loop]").click()
    frame.locator("[data-do=last]").click()
    frame.locator("[data-do=play]").click()
    place.filter(has_text="2 / 14").wait_for()
    frame.locator("[data-do=play]").click()
    frame.locator("body").press("End")
    place.filter(has_text="14 / 14").wait_for()
    page.locator("h1", has_text="Playground").click()
    page.keyboard.press("Home")  # without a click into the film
    place.filter(has_text="0 / 14").wait_for()


def exports(visitor: Visitor) -> None:
    """Save the moment as SVG, and the film as GIF and as video; a control ends a save."""
    page, frame = visitor.page, visitor.frame
    visitor.sets("ranks", 3)
    visitor.sees("allreduce.ring on 3 ranks")
    frame.locator("select").select_option("4")
    group = frame.get_by_role("group", name="Save")
    for name, begins in (("SVG picture", b"<svg"), ("GIF animation", b"GIF89a"), ("video", b"")):
        with page.expect_download() as download:
            group.get_by_role("button", name=name).press("Enter")
        content = download.value.path().read_bytes()
        assert content.startswith(begins) and len(content) > 1000, name
    frame.locator("select").select_option("0.5")
    group.get_by_role("button", name="video").press("Enter")
    frame.locator("[data-save=video]:disabled").wait_for()
    frame.locator("[data-do=first]").click()
    frame.locator("[data-save=video]:enabled").wait_for(timeout=3000)
    visitor.sets("ranks", 8)
    visitor.sees("allreduce.ring on 8 ranks")


def solves(visitor: Visitor) -> None:
    """Take a challenge: see the task and what is wrong, mend it, and leave."""
    page = visitor.page
    page.select_option("[name=challenge]", "chain")
    visitor.reads("sends block 0, which it does not hold")
    assert "before they have it" in page.locator("#playground .task").inner_text()
    text = page.input_value("[name=source]")
    send, receive = (text[text.index(mark) :] for mark in ("    if relative < size", "    if relative > 0"))
    visitor.types(send, receive.rstrip() + "\n" + send[: len(send) - len(receive)])
    visitor.reads("Proved for 1 to 32 ranks.")
    visitor.sees("bcast.chain on 8 ranks")
    solved = page.locator("[name=challenge] option", has_text="\u2713 chain")
    assert solved.count() == 1
    page.reload()
    visitor.sees("bcast.chain on 8 ranks")
    assert solved.count() == 1, "the browser has forgotten what is solved"
    page.select_option("[name=challenge]", "logarithm")
    visitor.reads("It is right, but it has 3 rounds on 4 ranks")
    visitor.sees("bcast.logarithm on 8 ranks")
    page.select_option("[name=challenge]", "")
    visitor.sees("bcast.naive on 8 ranks")
    page.select_option("[name=primitive]", "allreduce")
    page.select_option("[name=algorithm]", "ring")
    visitor.sees("allreduce.ring on 8 ranks")


def links(visitor: Visitor) -> None:
    """Follow links inside the page: they change what it shows, but not beyond its limits."""
    page = visitor.page
    for given, title in (
        ('{"primitive": "scan", "algorithm": "tree", "ranks": 9999}', "scan.tree on 32 ranks"),
        ('{"challenge": "logarithm"}', "bcast.logarithm on 32 ranks"),
        ("no link of this page", "allreduce.ring on 32 ranks"),
        ('{"ranks": 8}', "allreduce.ring on 8 ranks"),
    ):
        page.evaluate("given => { location.hash = encodeURIComponent(given) }", given)
        visitor.sees(title)
        many = "32 ranks" in title
        assert visitor.frame.locator(".matrix").count() == many, "many ranks are bands of a matrix"


def simulates(visitor: Visitor) -> None:
    """Change the bytes and the topology; the clock follows."""
    page, clock = visitor.page, visitor.frame.locator(".now .counters")
    page.wait_for_timeout(1000)  # so that the film is not loaded again
    visitor.frame.locator("[data-do=last]").click()  # the editor has the keyboard
    visitor.frame.locator("output", has_text="14 / 14").wait_for()
    before = clock.inner_text()
    page.select_option("[name=nbytes]", "67108864")
    clock.filter(has_not_text=before).wait_for()
    assert page.locator("#playground-topologies option").first.get_attribute("value") == "torus:8"
    before = clock.inner_text()
    page.fill("[name=topology]", "dragonfly:4x1x2")
    page.press("[name=topology]", "Enter")
    clock.filter(has_not_text=before).wait_for()
    page.fill("[name=topology]", "torus:2x2")
    page.press("[name=topology]", "Enter")
    visitor.reads("'torus:2x2' has hosts 0 to 3, but a rank is on 7")
    page.fill("[name=topology]", "")
    page.press("[name=topology]", "Enter")
    page.wait_for_function("!document.querySelector('#playground output').textContent")


def reads_chinese(visitor: Visitor, address: str) -> None:
    """Read a lesson in Chinese, follow its link, and break the algorithm there."""
    page = visitor.page
    page.goto(address.replace("playground.html", "search.html?q=梯度"))
    page.locator("ul.search a", has_text="梯度").first.wait_for()
    page.goto(address.replace("playground.html", "lessons/zh/parts.html"))
    assert page.locator("html[lang=zh-CN] .theme-switch-button[aria-label='配色']").count(), "the theme speaks Chinese"
    assert page.locator("a[hreflang=en]", has_text="English").count() == 1
    film = page.frame_locator("iframe.film").first
    film.locator("html[lang=zh-CN] button[title^='播放']").wait_for()
    page.locator("a", has_text="播放前半部分").click()
    page.wait_for_url("**/zh/playground.html#**")
    visitor.sees("reduce_scatter.ring（8 个进程）")
    assert page.locator("#playground label", has_text="算法").count() == 2, "of the list and of the editor"
    visitor.types("range(1, size)", "range(1,size)")
    visitor.reads("已证明：进程数为 1 到 32 时均正确。")
    visitor.types("rank - 1) % size", "rank + 1) % size")
    page.locator("#playground figcaption", has_text="箭头").wait_for()
    visitor.reads("号进程等待")
    visitor.clicks("copy")
    visitor.reads("链接已复制。")
    page.select_option("[name=challenge]", "chain")
    page.locator("#playground .task", has_text="沿着一条链").wait_for()


def main() -> int:
    """Visit on a wide and on a narrow screen, light and dark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="(%(default)s)")
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the page")
    options = parser.parse_args()
    with served(options.site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        wide = Visitor(browser.new_page(viewport={"width": 1280, "height": 1400}))
        visit(wide, address)
        reads_chinese(wide, address)
        narrow = Visitor(browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark"))
        narrow.page.goto(address)
        narrow.sees("allreduce.ring on 4 ranks")
        assert narrow.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "too wide for a telephone"
        fits(narrow)
        narrow.page.select_option("[name=beside]", "naive")
        narrow.sees("allreduce.ring and allreduce.naive on 4 ranks", films=2)
        fits(narrow)
        for visitor, name in ((wide, "wide"), (narrow, "narrow")):
            if options.pictures:
                visitor.page.screenshot(path=options.pictures / f"playground-{name}.png")
            assert not visitor.errors, visitor.errors
        browser.close()
    print("all controls work")
    return 0


if __name__ == "__main__":
    sys.exit(main())

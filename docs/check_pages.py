"""Look at the pages of a built site, wide and narrow, light and dark: ``python docs/check_pages.py SITE [PAGE ...]``.

On each page, text has at least 11 pixels and enough contrast (WCAG 2, AA), nothing sticks out of the page, and the
scripts report no error; so have the films and drawings in it.  This needs the package `playwright` and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from check_playground import Visitor, served
from playwright.sync_api import Page, sync_playwright

LEAST_CONTRAST = 4.5
LEAST_TEXT = 10.9  # pixels; 11, rounded
# Returns a line for each text that is hard to read or sticks out, once for each style.  Colors of drawings have tests.
LOOK = """([leastText, leastContrast]) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const parsed = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const over = (top, below) => below.map((part, index) => part + ((top[index] - part) * top[3]) / 255);
  const light = (color) => {
    const [r, g, b] = color.map((part) => (part / 255 <= 0.04 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = matchMedia("(prefers-color-scheme: dark)").matches ? [20, 25, 31] : [255, 255, 255];
  const lineage = (element) => (element ? [...lineage(element.parentElement), element] : []);
  const found = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const element = text.parentElement;
    if (!text.data.trim() || element.closest("script, style, mjx-container")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const { right, width, height } = range.getBoundingClientRect();
    if (width < 2 || height < 2) continue;
    const { color, fontSize } = getComputedStyle(element);
    const drawn = element instanceof SVGElement;
    const { b, d } = drawn ? element.getScreenCTM() : { b: 0, d: 1 };
    const size = parseFloat(fontSize) * Math.hypot(b, d);
    const note = (key, what) => found.set(key, `${what}: ${text.data.trim().slice(0, 40)}`);
    if (size < leastText) note(size, `text of ${size.toFixed(1)} pixels`);
    const scrolls = lineage(element).some((each) => /auto|scroll/.test(getComputedStyle(each).overflowX));
    if (right > innerWidth + 1 && !scrolls && !element.closest(".ellipsis")) note(element.className, "out of the page");
    if (drawn) continue;
    const layers = lineage(element).map((each) => parsed(getComputedStyle(each).backgroundColor));
    const below = layers.reduce((under, layer) => over(layer, under), paper);
    const [dark, bright] = [over(parsed(color), below), below].map(light).sort((one, other) => one - other);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < leastContrast) note(color + below, `contrast ${contrast.toFixed(2)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) found.set("page", "the page scrolls sideways");
  return [...found.values()];
}"""


def pages_of(site: Path) -> list[str]:
    """Return the pages that people read, without lists of names and complete drawings."""
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    left_out = "_static/", "api/", "drawings/", "films/", "genindex", "py-modindex", "search"
    return [name for name in names if not name.startswith(left_out)]


def look(page: Page, address: str) -> list[str]:
    """Return what is wrong on a page and in its frames."""
    page.goto(address)
    tall = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, tall, 700):  # frames and pictures are loaded when they come into sight
        page.evaluate(f"scrollTo(0, {top})")
        page.wait_for_timeout(50)
    page.wait_for_load_state("load")
    page.wait_for_timeout(500)
    return [f"{frame.title()}: {line}" for frame in page.frames for line in frame.evaluate(LOOK, LIMITS)]


LIMITS = [LEAST_TEXT, LEAST_CONTRAST]


def main() -> int:
    """Look at all pages in each way; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="(default: all)")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="(%(default)s)")
    options = parser.parse_args()
    names, wrong = options.pages or pages_of(options.site), 0
    with served(options.site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        for wide in (1280, 390):
            for scheme in ("light", "dark"):
                size = {"width": wide, "height": 900}
                visitor = Visitor(browser.new_page(viewport=size, color_scheme=scheme))
                for name in names:
                    lines = look(visitor.page, address.replace("playground.html", name)) + visitor.errors
                    visitor.errors.clear()
                    wrong += len(lines)
                    for line in lines:
                        print(f"{name}, {wide} pixels, {scheme}: {line}")
        browser.close()
    print(f"{len(names)} pages, each wide and narrow, light and dark: {wrong or 'nothing'} to mend")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

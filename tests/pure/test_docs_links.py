"""Links between the Markdown pages lead to existing files and headings.  Web addresses are not checked."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

markdown_it = pytest.importorskip("markdown_it")
ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page.relative_to(ROOT)
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "pycoll/*.md",
        "bench/**/*.md",
        "tests/*.md",
        "slurm/*.md",
        "examples/*.md",
    )
    for page in ROOT.glob(pattern)
    if "_build" not in page.parts
)


def links(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    tokens = markdown_it.MarkdownIt().enable("table").parse(text)
    spans = [span for token in tokens for span in token.children or ()]
    return re.findall(r'<\w[^>]* (?:src|srcset|href)="([^"]+)"', text) + [
        str(span.attrs.get("href", span.attrs.get("src"))) for span in spans if span.type in ("link_open", "image")
    ]


def headings(page):
    """Return the anchors that GitHub generates for the headings of a page."""
    found = re.findall(r"^#+ +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken(page, link):
    target, _, heading = unquote(link).partition("#")
    file = (ROOT / page).parent / target if target else ROOT / page
    if not file.exists():
        return True
    return bool(heading) and file.suffix == ".md" and heading not in headings(file)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    local = [link for link in links(page) if not re.match(r"\w+:|drawings/", link)]  # the build generates the drawings
    assert not [link for link in local if broken(page, link)]


def test_a_broken_link_is_found():
    assert broken(Path("README.md"), "docs/no-such-page.md") and broken(Path("README.md"), "#no-such-heading")
    assert len(links(Path("README.md"))) > 5

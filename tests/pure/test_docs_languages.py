"""The pages in Chinese have the headings, programs, outputs, tables and links of those in English."""

import importlib
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

markdown_it = pytest.importorskip("markdown_it")
ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page.relative_to(ROOT)
    for pattern in ("*.md", "slurm/*.md", "docs/**/*.md")
    for page in ROOT.glob(pattern)
    if "_build" not in page.parts
)


def english(page):
    """Return the English version of a Chinese page."""
    name = page.as_posix()
    versions = name.replace(".zh.", "."), name.replace("/zh/", "/en/"), name.replace("/zh/", "/")
    return next(path for path in map(Path, versions) if path != page and path in PAGES)


CHINESE = [page for page in PAGES if re.search(r"\bzh\b", page.as_posix())]
BOTH = {english(page): page for page in CHINESE}


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def directive(token):
    """Return a directive without its text, and without what differs in paths."""
    lines = [token.info, *(line for line in token.content.splitlines() if line.startswith(":"))]
    return [re.sub(r"(\.\./)+|\.zh\b", "", line) for line in lines]


def outline(text, comments=True):
    """Return what both versions of a page have: headings, list items, code, and numbers and code in tables."""
    found = []
    tokens = markdown_it.MarkdownIt().enable("table").parse(text)
    for token, following in pairwise([*tokens, None]):
        if token.type == "heading_open":
            found.append(token.tag)
        elif token.type == "list_item_open":
            found.append("item")
        elif token.type in ("th_open", "td_open"):
            cell = re.sub(r"\{doc\}`[^`]+`|\]\([^)]+\)", "", following.content)
            found.append(sorted(re.findall(r"`[^`]+`|\d+(?:\.\d+)?", cell)))
        elif token.type == "html_block":
            found += re.findall("<!-- .*? -->", token.content)
        elif token.info.startswith("{"):
            found.append(directive(token))
        elif token.type in ("fence", "code_block"):
            found.append((token.info, token.content if comments else re.sub(" *# .*", "", token.content)))
    return found


def links(page):
    """Return the pages of the repository to which a page links."""
    targets = re.findall(r"\]\(([^)#:]+\.md)", read(page))
    targets += [f"{name}.md" for name in re.findall(r"\{doc\}`(?:[^`<]*<)?([^`>]+)>?`", read(page))]
    return {(ROOT / page.parent / target).resolve().relative_to(ROOT) for target in targets}


@pytest.mark.parametrize("page", CHINESE, ids=str)
def test_both_versions_have_the_same_outline(page):
    comments = page != Path("README.zh.md")  # its comments are translated
    assert outline(read(english(page)), comments) == outline(read(page), comments)


@pytest.mark.parametrize("page", CHINESE, ids=str)
def test_links_lead_to_pages_in_chinese(page):
    translated = {each for each in links(page) & set(BOTH) if each != english(page)}
    assert not translated, f"link to {', '.join(str(BOTH[each]) for each in translated)} instead"


@pytest.mark.parametrize(
    "old, new",
    [
        ("## Try", "### Try"),
        ("8 ranks", "9 ranks"),
        ("import pycoll", "import numpy"),
        ("ring\n", "tree\n"),
        ("rows: A", "rows: B"),
        ("run:", "ru:"),
    ],
)
def test_a_difference_is_found(old, new):
    text = "\n\n".join(
        [
            "## Try",
            "| `ring` | 8 ranks |\n|---|---|\n| 1 | 2 |",
            "```{play} allreduce ring\nText.\n```",
            "```{ratios} core/calls-2\n:rows: Allreduce\nText.\n```",
            "<!-- run: 1 rank -->\n```python\nimport pycoll\n```",
        ]
    )
    assert old in text and outline(text) != outline(text.replace(old, new))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A function that builds a site from pages, and returns its folder."""
    for package in ("jieba", "myst_parser"):
        pytest.importorskip(package)
    application = pytest.importorskip("sphinx.application")
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    settings = {
        "extensions": ["myst_parser", "languages"],
        "html_theme": "basic",
        "templates_path": [str(ROOT / "docs/_templates")],
        "html_sidebars": {"**": ["translation.html"]},
    }

    def build(pages):
        for name, text in pages.items():
            page = tmp_path / "pages" / name
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        folders = tmp_path / "pages", None, tmp_path / "site", tmp_path / "doctrees"
        application.Sphinx(*folders, "html", confoverrides=settings, status=None, warning=None).build()
        return tmp_path / "site"

    return build


CONTENTS = "# Contents\n\n```{toctree}\n:glob:\n*/*\n*/zh/*\n```\n"


def test_a_site_in_both_languages(build):
    site = build(
        {
            "index.md": CONTENTS,
            "guide/gradients.md": "# Gradients\n",
            "guide/zh/gradients.md": "# 桶\n\n梯度\n分成桶。\n`pycoll` 对每个桶求\n平均值。桶由 `Bucket`\n表示。\n",
        }
    )
    english, chinese = (
        (site / "guide" / name).read_text(encoding="utf-8") for name in ("gradients.html", "zh/gradients.html")
    )
    assert '<html lang="en"' in english and 'href="zh/gradients.html" hreflang="zh-CN"' in english
    assert '<html lang="zh-CN"' in chinese and 'href="../gradients.html" hreflang="en"' in chinese
    text = re.sub("<.*?>", "", chinese)
    assert "梯度分成桶。pycoll 对每个桶求平均值。桶由 Bucket\n表示。" in text
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    words = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["terms"]
    assert {"梯度", "平均值", "bucket"} <= set(words)


def test_a_chinese_page_needs_an_english_version(build):
    with pytest.raises(Exception, match="guide/zh/gradients has no English version: expected guide/en/gradients or gu"):
        build({"index.md": CONTENTS, "guide/zh/gradients.md": "# 梯度\n"})


UNUSED = {  # of pages that the site does not have, or that are in English
    "Edit",
    "Error",
    "General Index",
    "Global Module Index",
    "Indices",
    "Please activate JavaScript to enable the search functionality.",
    "Python Module Index",
}


def test_the_theme_has_chinese_words(monkeypatch):
    theme = Path(pytest.importorskip("pydata_sphinx_theme").__file__).parent / "theme/pydata_sphinx_theme"
    pytest.importorskip("jieba")
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    languages = importlib.import_module("languages")
    templates = [path.read_text(encoding="utf-8") for path in theme.rglob("*.html")]
    words = {found[1] for text in templates for found in re.findall(r"""_\((["'])(.+?)\1\)""", text)}
    words |= {" ".join(found.split()) for text in templates for found in re.findall(r"%\}([^{}<>]+)\{% endtrans", text)}
    assert len(words) > 20 and words - UNUSED <= languages.THEME.keys()


def test_a_chinese_page_has_the_words_of_the_theme(monkeypatch):
    pytest.importorskip("jieba")
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    words = {
        "body": '<a title="Link to this heading">',
        "generate_header_nav_html": lambda: "<button>\nMore\n</button>",
    }
    english, chinese = {**words}, {**words}
    for page, context in (("guide/tuning", english), ("guide/zh/tuning", chinese)):
        importlib.import_module("languages").speak_chinese(None, page, "", context, None)
    assert english == words
    assert chinese["gettext"]("Dark") == "深色" and chinese["gettext"]("another") == "another"
    assert chinese["body"] == '<a title="本节的链接">' and "更多" in chinese["generate_header_nav_html"]()

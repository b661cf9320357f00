"""Pages in two languages: links between the versions of a page, and line breaks and search in Chinese text.

A Chinese page is in a folder ``zh``.  Its English version has the same name, in the folder ``en`` beside it, or else in
the folder above.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import Any

import jieba
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.search.en import SearchEnglish
from sphinx.transforms import SphinxTransform

jieba.setLogLevel("WARNING")


def language_of(page: str) -> str:
    """Return the language of a page."""
    return "zh-CN" if "zh" in page.split("/")[:-1] else "en"


def pairs(pages: Collection[str]) -> dict[str, str]:
    """Return the English version of each Chinese page."""
    found = {}
    for page in pages:
        if language_of(page) != "en":
            versions = [f"/{page}".replace("/zh/", other).removeprefix("/") for other in ("/en/", "/")]
            found[page] = next((version for version in versions if version in pages), "")
            if not found[page]:
                raise ExtensionError(f"{page} has no English version: expected {' or '.join(versions)}")
    return found


def name_the_languages(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Set the language of a Chinese page, for fonts and screen readers, and link to the other version of a page."""
    english = pairs(app.env.found_docs)
    chinese = {version: name for name, version in english.items()}
    if page in english:
        context |= {"language": "zh-CN", "translation": (english[page], "en", "English")}
    elif page in chinese:
        context["translation"] = chinese[page], "zh-CN", "中文"


class JoinLines(SphinxTransform):
    """Remove line breaks in Chinese text, which browsers would show as spaces."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Remove the text nodes of these line breaks."""
        texts = [text for text in self.document.findall(nodes.Text) if len(text)]  # any node is true
        for before, text, after in zip(texts, texts[1:], texts[2:], strict=False):
            if text == "\n" and not needs_space(before[-1], after[0]):
                text.parent.children = [child for child in text.parent.children if child is not text]


def needs_space(before: str, after: str) -> bool:
    """Return whether a space belongs between two characters: not between Chinese ones, nor at Chinese punctuation."""
    wide = [unicodedata.east_asian_width(character) in "WF" for character in (before, after)]
    punctuation = [unicodedata.category(character).startswith("P") for character in (before, after)]
    return not all(wide) and (True, True) not in zip(wide, punctuation, strict=True)


class SearchBothLanguages(SearchEnglish):
    """Finds the words of Chinese sentences, which have no spaces between them, as well as English ones."""

    def split(self, text: str) -> list[str]:
        """Return the words of a text."""
        return [*super().split(text), *(word for word in jieba.cut_for_search(text) if not word.isascii())]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the event handler, the transform, and the search instead of the English one."""
    app.connect("html-page-context", name_the_languages)
    app.add_search_language(SearchBothLanguages)
    app.add_transform(JoinLines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Pages in two languages: links between the versions of a page, and line breaks and search in Chinese text.

A Chinese page is in a folder ``zh``.  Its English version has the same name, in the folder ``en`` beside it, or else in
the folder above.
"""

from __future__ import annotations

import re
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

# the words of the theme on Chinese pages; its own translation lacks some of them, and holds for all pages of a site
THEME = {
    "Announcement": "公告",
    "Back to top": "回到顶部",
    "Breadcrumb": "面包屑导航",
    'Built with the <a href="%(PST_url)s">PyData Sphinx Theme</a> %(theme_version)s.': (
        '由 <a href="%(PST_url)s">PyData Sphinx Theme</a> %(theme_version)s 生成。'
    ),
    "Collapse Sidebar": "收起侧边栏",
    "Color mode": "配色",
    "Dark": "深色",
    "Expand Sidebar": "展开侧边栏",
    "Home": "首页",
    "Index": "索引",
    "Light": "浅色",
    "Link to this heading": "本节的链接",
    "More": "更多",
    "On this page": "本页目录",
    "Search": "搜索",
    "Search the docs ...": "搜索文档……",
    "Section Navigation": "本章导航",
    "Show Source": "查看源文件",
    "Site navigation": "网站导航",
    "Skip to main content": "跳到正文",
    "System Settings": "跟随系统",
    "Version warning": "版本提示",
    "next": "下一页",
    "next page": "下一页",
    "previous": "上一页",
    "previous page": "上一页",
}


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


def speak_chinese(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Replace the words of the theme on a Chinese page."""
    if language_of(page) == "en":
        return

    def header(*args: Any, **given: Any) -> str:
        return re.sub(r"(?<=\s)More(?=\s)", THEME["More"], shown(*args, **given))

    shown, link = context.get("generate_header_nav_html"), "Link to this heading"
    context["gettext"] = lambda text: THEME.get(text, text)
    context["theme_search_bar_text"] = THEME["Search the docs ..."]
    context["body"] = context.get("body", "").replace(f'title="{link}"', f'title="{THEME[link]}"')
    if shown:
        context["generate_header_nav_html"] = header


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
    app.connect("html-page-context", speak_chinese, priority=900)  # after the theme
    app.add_search_language(SearchBothLanguages)
    app.add_transform(JoinLines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The words of drawings and of the playground: none is missing in either language, and pages use no others."""

import ast
import re
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter

import pytest

from pycoll import playground
from pycoll.draw.language import LANGUAGES, WORDS, say, speaking
from pycoll.draw.markup import VOID

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [*(ROOT / "pycoll/draw").glob("*.py"), ROOT / "pycoll/playground.py", ROOT / "docs/_ext/playground.py"]
parse = Formatter().parse
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def fields(text):
    return {name for _, name, _, _ in parse(text) if name} - {"s"}


@pytest.mark.parametrize("key", WORDS)
def test_each_language_has_the_words(key):
    english, chinese = WORDS[key]
    assert english.strip() and not CHINESE.search(english)
    assert CHINESE.search(chinese) or key in ("comma", "on")
    assert fields(english) == fields(chinese)


def test_all_words_are_used_and_all_that_are_used_are_known():
    """Keys are strings somewhere in the sources; those that `say` gets directly are in the table."""
    strings, said = set(), set()
    for path in SOURCES:
        if path.name == "language.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say":
                said |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    assert said <= set(WORDS)
    assert set(WORDS) - strings == {"save_svg", "save_gif", "save_video"}  # named by the format


def test_the_script_of_the_playground_has_its_words():
    text = (ROOT / "docs/_static/playground/playground.js").read_text()
    listed = (ROOT / "docs/_ext/playground.py").read_text().partition("WORDS_OF_SCRIPT = ")[2].partition("\n")[0]
    assert set(re.findall(r"words\.(\w+)", text)) == set(ast.literal_eval(listed))


def test_words_follow_the_language():
    assert say("ranks_given", n=1) == "1 rank" and say("ranks_given", n=2) == "2 ranks"
    with speaking("zh-CN"):
        assert say("ranks_given", n=2) == "2 \u4e2a\u8fdb\u7a0b"
    assert say("ranks_given", n=2) == "2 ranks"
    with pytest.raises(ValueError, match="language 'fr' is not one of: en, zh-CN"), speaking("fr"):
        pass
    assert LANGUAGES == ("en", "zh-CN")


class Texts(HTMLParser):
    """Collect what a reader sees or hears of a page: texts and labels, but no code and no docstrings."""

    def __init__(self, markup):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(markup)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.texts += [given[name] for name in ("aria-label", "title") if name in given]
        docstring = tag == "p" and given.get("class") not in ("keys", "quiet")
        self.open += [] if tag in VOID else ["docstring" if docstring else tag]

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, text):
        self.texts += [] if {"script", "style", "code", "docstring"} & set(self.open) else [text.strip()]


def pattern(text):
    """Return a regular expression for words with anything in their fields."""
    return re.compile(
        "".join(re.escape(before) + ".+" * (name is not None) for before, name, _, _ in parse(text.strip()))
    )


ENGLISH = [pattern(english) for english, _ in WORDS.values()]


@pytest.mark.parametrize(
    "primitive, names, ranks",
    [
        ("allreduce", ["ring", "tree"], 4),
        ("bcast", ["two_level"], 6),
        ("alltoallv", ["tree"], 5),
        ("barrier", ["tree"], 4),
        ("scan", ["tree"], 9),
        ("allreduce", ["swing"], 20),
    ],
)
def test_pages_are_in_one_language(primitive, names, ranks):
    page = {one: playground.page(primitive, names, ranks, ranks_per_host=2, language=one) for one in LANGUAGES}
    texts = {one: set(Texts(page[one]).texts) for one in LANGUAGES}
    assert f'<html lang="{LANGUAGES[1]}">' in page[LANGUAGES[1]]
    assert not any(CHINESE.search(text) for text in texts["en"])
    found = {text for text in texts["zh-CN"] for english in ENGLISH if english.fullmatch(text)}
    assert not found
    assert sum(any(english.fullmatch(text) for english in ENGLISH) for text in texts["en"]) > 30

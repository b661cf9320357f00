"""The pages in Chinese have the programs, outputs and links of those in English."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "docs/lessons"
NAMES = sorted(page.name for page in (LESSONS / "en").iterdir())


def blocks(language, name):
    """Return all fenced blocks with the comments before them, without the text of links to the playground."""
    text = (LESSONS / language / name).read_text(encoding="utf-8")
    found = re.findall(r"((?:<!--[^\n]*-->\n)?```.*?```)", text, re.DOTALL)
    return [block.rsplit("\n", 2)[0] if "{play}" in block else block for block in found]


def test_each_language_has_all_lessons():
    assert NAMES == sorted(page.name for page in (LESSONS / "zh").iterdir()) and len(NAMES) == 10


def test_the_blocks_of_the_readme_are_the_same():
    """Only their comments are translated."""
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))

    def code(text):
        found = re.findall(r"^<!-- .*?-->$|^```\w*\n.*?^```$|^    [^\n]+$", text, re.DOTALL | re.MULTILINE)
        return [re.sub(r" *# .*", "", block) for block in found]

    assert code(english) == code(chinese)
    assert sum("<!-- run" in block for block in code(english)) > 2


@pytest.mark.parametrize("name", NAMES)
def test_the_blocks_are_the_same(name):
    assert blocks("en", name) == blocks("zh", name)
    assert any("<!-- run" in block for block in blocks("en", name))


def test_the_plans_for_teachers_have_the_same_programs_and_links():
    def code(name):
        text = (LESSONS / name).read_text(encoding="utf-8")
        return re.findall(r"<!--.*?-->|^```.*?^```", text, re.DOTALL | re.MULTILINE), re.findall(
            r"\{play\}`[^`<]*<([^>]*)>`", text
        )

    assert code("teaching.md") == code("teaching.zh.md")
    assert len(code("teaching.md")[1]) > 10


def test_the_index_lists_all():
    text = (LESSONS / "index.md").read_text(encoding="utf-8")
    assert all(f"{language}/{Path(name).stem}\n" in text for name in NAMES for language in ("en", "zh"))

"""The index of the lessons lists all of them, in both languages; the plans for teachers show the same."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LESSONS = ROOT / "docs/lessons"
NAMES = sorted(page.name for page in (LESSONS / "en").iterdir())


def test_each_language_has_all_lessons():
    assert NAMES == sorted(page.name for page in (LESSONS / "zh").iterdir()) and len(NAMES) == 12


def test_the_plans_for_teachers_have_the_same_links_to_the_playground():
    def links(language):
        text = (LESSONS / language / "teaching.md").read_text(encoding="utf-8")
        return re.findall(r"\{play\}`[^`<]*<([^>]*)>`", text)

    assert links("en") == links("zh")
    assert len(links("en")) > 10


def test_the_index_lists_all():
    text = (LESSONS / "index.md").read_text(encoding="utf-8")
    assert all(f"{language}/{Path(name).stem}\n" in text for name in NAMES for language in ("en", "zh"))

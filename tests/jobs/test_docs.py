"""The code blocks of the documentation, run by docs/check_code.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import ENVIRONMENT

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "docs/check_code.py"
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if "_build" not in page.parts and "<!-- run" in page.read_text(encoding="utf-8")
)


def check(page):
    command = [sys.executable, str(CHECK), str(page)]
    return subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=220)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page):
    done = check(page)
    assert done.returncode == 0 and ", 0 failed" in done.stdout, done.stdout + done.stderr


def test_there_are_code_blocks():
    assert {"README.md", "README.zh.md", "docs/tutorial.md", "docs/cheatsheet.md"} <= set(PAGES)


@pytest.mark.parametrize(
    "block, problem",
    [
        ("<!-- run -->\n```python\nraise SystemExit(3)\n```\n", "failed with status"),
        ("<!-- run -->\n```console\n$ echo 1\n```\n<!-- output -->\n```text\n2\n```\n", "the output is"),
        (
            "<!-- source: pycoll/primitives/scan.py -->\n```python\ndef ring(rank, size):\n    yield 1\n```\n",
            "not as in pycoll/primitives/scan.py",
        ),
    ],
)
def test_a_wrong_block_fails(tmp_path, block, problem):
    (tmp_path / "page.md").write_text(block)
    done = check(tmp_path / "page.md")
    assert done.returncode == 1 and problem in done.stdout and ", 1 failed" in done.stdout, done.stdout + done.stderr

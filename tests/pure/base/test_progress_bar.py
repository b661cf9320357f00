"""Progress bars."""

import sys

import pytest

from pycoll.base import progress_bar as module
from pycoll.base.progress_bar import progress_bar


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock; each call of `clock(seconds)` advances it."""
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])

    def advance(seconds):
        now[0] += seconds

    return advance


def run(clock, items, seconds, *arguments, **options):
    """Iterate with this number of seconds for each item; return the items."""
    found = []
    for item in progress_bar(items, *arguments, **options):
        found.append(item)
        clock(seconds)
    return found


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress_bar([1, 2, 3], "title", "point")) == [1, 2, 3]
    written = capsys.readouterr()
    assert "title" in written.err and "0/3" in written.err and not written.out


def test_a_pipe_gets_whole_lines_with_the_time_left(clock, capsys):
    assert run(clock, range(4), 2.0, "bench", "point") == [0, 1, 2, 3]
    lines = [f"bench: {done} of 4 points, {8 - 2 * done} s left\n" for done in (1, 2, 3)]
    assert capsys.readouterr() == ("", "".join(lines))


def test_at_most_one_line_a_second(clock, capsys):
    run(clock, range(50), 0.125, "bench", "point")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["bench: 8 of 50 points, 5 s left", "bench: 16 of 50 points, 4 s left"] and len(lines) == 6


def test_long_commands_write_fewer_lines(clock, capsys):
    run(clock, range(300), 1.0, "tuning", "point")
    assert len(capsys.readouterr().err.splitlines()) < 80


def test_items_without_a_number(clock, capsys):
    run(clock, iter("abc"), 2.0, "prove", "algorithm")
    run(clock, iter("abc"), 2.0, "prove", "algorithm", 3)
    assert capsys.readouterr().err.splitlines() == [
        "prove: 1 algorithms",
        "prove: 2 algorithms",
        "prove: 1 of 3 algorithms, 4 s left",
        "prove: 2 of 3 algorithms, 2 s left",
    ]


def test_other_ranks_write_nothing(clock, capsys):
    assert run(clock, iter("ab"), 5.0, "title", "point", 2, shown=False) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_a_bar_needs_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(progress_bar([1, 2], "title", "point")) == [1, 2]
    assert capsys.readouterr() == ("", "")

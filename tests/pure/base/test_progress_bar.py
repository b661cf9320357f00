"""Progress bars."""

import sys

import pytest

from pycoll.base.progress_bar import progress_bar


def test_a_bar_is_written_to_stderr(capsys):
    pytest.importorskip("tqdm")
    assert list(progress_bar([1, 2, 3], "title", "point")) == [1, 2, 3]
    written = capsys.readouterr()
    assert "title" in written.err and "0/3" in written.err and not written.out


def test_other_ranks_write_nothing(capsys):
    assert list(progress_bar(iter("ab"), "title", "point", 2, shown=False)) == ["a", "b"]
    assert capsys.readouterr() == ("", "")


def test_it_does_not_need_tqdm(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(progress_bar([1, 2], "title", "point")) == [1, 2]
    assert capsys.readouterr() == ("", "")

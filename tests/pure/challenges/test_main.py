"""The command lists, writes and judges challenges."""

import inspect

import pytest

from pycoll.challenges.__main__ import main
from pycoll.challenges.tasks import CHALLENGES

from . import solutions


def test_the_list(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"{each.name} ({each.primitive})" in printed for each in CHALLENGES.values())


def test_one_is_written_and_judged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["chain"]) == 0
    assert (tmp_path / "chain.py").read_text() == CHALLENGES["chain"].text
    assert main(["chain", "chain.py"]) == 1
    assert "sends block 0, which it does not hold" in capsys.readouterr().out
    (tmp_path / "chain.py").write_text(inspect.getsource(solutions.chain))
    assert main(["chain", "chain.py"]) == 0
    assert capsys.readouterr().out == "Proved for 1 to 32 ranks.\n"


def test_what_was_written_is_not_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.py").write_text("mine")
    with pytest.raises(SystemExit):
        main(["blank"])
    assert "blank.py exists" in capsys.readouterr().err and (tmp_path / "blank.py").read_text() == "mine"


def test_files_that_are_not_there(capsys):
    for given, says in ((["nothing"], "invalid choice"), (["blank", "nowhere.py"], "nowhere.py: No such file")):
        with pytest.raises(SystemExit):
            main(given)
        assert says in capsys.readouterr().err


def test_files_that_are_no_text_or_leave(tmp_path, capsys):
    (tmp_path / "chain.py").write_bytes(b"\xff")
    with pytest.raises(SystemExit):
        main(["chain", str(tmp_path / "chain.py")])
    assert "chain.py is no text in UTF-8" in capsys.readouterr().err
    (tmp_path / "chain.py").write_text("raise SystemExit(0)\n")
    assert main(["chain", str(tmp_path / "chain.py")]) == 1
    assert "line 1: SystemExit: 0" in capsys.readouterr().out


def test_a_schedule_that_never_yields(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pycoll.schedule.endless.LIMIT", 0.2)
    text = "@algorithm()\ndef chain(rank, size, root):\n    while True:\n        pass\n    yield ()\n"
    (tmp_path / "chain.py").write_text(text)
    assert main(["chain", str(tmp_path / "chain.py")]) == 1
    assert "no round within 0.2 s" in capsys.readouterr().out

"""The command that runs the tests."""

import os
import sys
from pathlib import Path

import pytest

from tests import __main__ as command
from tests.launch import COUNTS


@pytest.mark.parametrize(
    "options, outcomes, code, lines",
    [
        ([], [0], 0, ["jobs: 3 passed, 0 failed", "2 ranks: 3 passed, 0 failed", "6 passed, 0 failed"]),
        ([], [2], 1, ["jobs: 1 passed, 2 failed", "4 passed, 2 failed"]),
        (["--again"], [2, 0], 0, ["jobs, the first time: 1 passed, 2 failed", "jobs: 3 passed", "6 passed, 0 failed"]),
        (["--again"], [2, 1], 1, ["jobs: 2 passed, 1 failed", "5 passed, 1 failed"]),
    ],
)
def test_repeated_jobs(monkeypatch, capsys, options, outcomes, code, lines):
    def run(what, *_, **__):
        bad = outcomes.pop(0) if what == "jobs" else 0
        Path(os.environ[COUNTS]).write_text(f"{3 - bad} {bad}")
        return bad > 0

    monkeypatch.setattr(command, "on_one", run)
    monkeypatch.setattr(command, "on_ranks", run)
    monkeypatch.setenv(COUNTS, "")
    monkeypatch.setattr(sys, "argv", ["tests", "--no-pure", "--ranks", "2", *options])
    assert command.main() == code
    printed = capsys.readouterr().out
    assert not outcomes
    assert all(line in printed for line in lines), printed

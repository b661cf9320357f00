"""The record, which the guide draws, is what the command prints."""

from pathlib import Path

import pytest

from pycoll.bench.topologies import main

RECORD = Path(__file__).parents[3] / "bench/results/topologies.md"


@pytest.mark.slow
def test_the_record_is_what_the_command_prints(capsys):
    main([])
    assert capsys.readouterr().out == RECORD.read_text(encoding="utf-8")

"""The tables in the guide are those that the command prints."""

from pathlib import Path

import pytest

from pycoll.bench.what_if import main

GUIDE = Path(__file__).parents[3] / "docs/guide/what_if.md"


@pytest.mark.slow
def test_the_guide_has_the_tables(capsys):
    main([])
    rows = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(rows) > 30
    assert not set(rows) - set(GUIDE.read_text().splitlines())

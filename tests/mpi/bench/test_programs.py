"""The timing of the calls of real programs."""

import json

import pytest

from pycoll.bench import calls, programs
from tests.mpi.native import RANK

pytestmark = pytest.mark.mpi


def test_every_call_of_every_program_is_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calls, "BLOCK", 1e-4)
    path = tmp_path / "records.json"
    assert programs.main(["--seconds", "0", "--json", str(path)]) == 0
    if RANK == 0:
        records = json.loads(path.read_text())["records"]
        timed = {(program, record["call"]) for record in records for program in record["programs"]}
        assert timed == {(name, f"{call}, {kind}") for name, made in programs.PROGRAMS.items() for kind, call in made}
        assert all(record["mpi"] > 0 and record["comm"] > 0 for record in records)
        assert "Alltoallw, Cartesian" in capsys.readouterr().out

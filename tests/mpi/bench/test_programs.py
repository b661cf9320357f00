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
        listed = json.loads(programs.LIST.read_text())
        cases = {case for program in listed.values() for case in programs.cases_of(program["calls"])}
        records = json.loads(path.read_text())["records"]
        timed, rows = records[: -len(listed)], records[-len(listed) :]
        assert {(each["call"], each["bytes"]) for each in timed} == {(f"{a.call}, {a.comm}", a.size) for a in cases}
        assert all(each["mpi"] > 0 and each["comm"] > 0 for each in timed)
        assert [row["program"] for row in rows] == list(listed) and len(listed) == 17
        assert "Allreduce, world" in capsys.readouterr().out


def test_what_only_mpi_can_read_is_not_timed():
    record = {"comm": "world", "method": "Bcast", "type": "buffer", "bytes": 16, "times": 2}
    assert programs.cases_of([record]) == {("world", "Bcast", 64): 2}
    assert programs.cases_of([record | {"bytes": -1}, record | {"type": "Model"}, record | {"comm": "alone"}]) == {}

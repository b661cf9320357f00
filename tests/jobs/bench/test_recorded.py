"""The calls of programs: recorded, and timed."""

import json
from importlib.metadata import version
from pathlib import Path

from tests.jobs.bench.refused import refusals
from tests.launch import run

PROGRAM = Path(__file__).parent / "programs" / "calls_of_all_kinds.py"
CALLS = {  # (communicator, method, type, bytes): times
    ("world", "Allreduce", "buffer", 32): 1,
    ("world", "barrier", "", 0): 3,
    ("world", "scatter", "float", 32): 1,
    ("world", "allgather", "tuple", 32): 1,
    ("world", "Dup", "buffer", 0): 1,
    ("copy", "Bcast", "buffer", 32): 1,
    ("copy", "Iallgather", "buffer", 16): 1,
    ("world", "Create_cart", "buffer", 0): 1,
    ("Cartesian", "Alltoall", "buffer", 16): 1,
    ("Cartesian", "Neighbor_allgather", "buffer", 16): 1,
    ("Cartesian", "Sub", "buffer", 0): 1,
    ("alone", "bcast", "str", 32): 1,
    ("world", "Bcast", "buffer", 1 << 17): 1,
}


def test_recorded_and_timed(tmp_path):
    listed, times = tmp_path / "list.json", tmp_path / "times.json"
    record = ["-m", "pycoll.bench.recorded", "--json", str(listed)]
    for program in [str(PROGRAM)], ["--package", "mpi4py", "-m", "mpi4py.bench", "helloworld"]:
        job = run(2, [*record, *program])
        assert job.code == 0, job.output
    own = json.loads(listed.read_text())
    assert {*own} == {"calls_of_all_kinds", "mpi4py"}
    assert own["mpi4py"]["version"] == version("mpi4py") and own["mpi4py"]["ranks"] == 2
    found = own["calls_of_all_kinds"]["calls"]
    assert {tuple(each[key] for key in ("comm", "method", "type", "bytes")): each["times"] for each in found} == CALLS
    job = run(2, ["-m", "pycoll.bench.programs", str(listed), "--seconds", "0.01", "--json", str(times)])
    assert job.code == 0, job.output
    *timed, program, other = json.loads(times.read_text())["records"]
    assert sorted((each["call"], each["bytes"]) for each in timed) == [
        ("Allreduce, world", 64),
        ("Alltoall, Cartesian", 64),
        ("Barrier, world", 8),
        ("Bcast, world", 64),
        ("Neighbor_allgather, Cartesian", 64),
        ("allgather tuple, world", 64),
        ("barrier, world", 8),
        ("scatter float, world", 64),
    ]
    assert all(each["mpi"] > 0 and each["comm"] > 0 for each in timed)
    assert program["times"] == sum(CALLS.values()) and program["timed"] == 9 / 15
    assert program["ratio"] > 0 and (other["times"], other["timed"]) == (2, 1)


def test_wrong_options(tmp_path):
    cases = [[str(tmp_path / "missing.json")], ["--seconds", "long"]]
    missing, seconds = refusals(2, "pycoll.bench.programs", cases)
    assert "missing.json: no such file" in missing and "invalid float value: 'long'" in seconds

"""What prevents an export, and what is printed of the measurements."""

import argparse
import json
import os
import re

import pytest

from pycoll.runtime import native
from pycoll.tune.export import command, document
from pycoll.tune.export.command import problem
from tests.mpi.native import RANK, WORLD

pytestmark = pytest.mark.mpi

THIS = "mpich" if native.library().startswith("MPICH") else "ompi"


def test_a_directory_that_may_not_be_written(tmp_path, monkeypatch):
    assert problem(THIS, tmp_path) is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert problem(THIS, tmp_path) == f"-o {tmp_path}: the directory is not writeable"


def test_rules_for_another_version(tmp_path):
    found = document.existing(tmp_path) | {"mpi": "MPI 1.0"}
    (tmp_path / document.MEASUREMENTS).write_text(json.dumps(found))
    expected = f"-o {tmp_path}: its rules are for MPI 1.0, not for {native.library()}; name another directory"
    assert problem(THIS, tmp_path) == expected


@pytest.mark.parametrize("name", ["OMPI_MCA_coll", "OMPI_MCA_coll_han_priority", "MPIR_CVAR_REDUCE_COMPOSITION"])
def test_variables_that_select_algorithms(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert problem(THIS, tmp_path) == f"--export {THIS}: unset {name}, which select algorithms"


def point(nbytes, best, selected, gain):
    return {"nbytes": nbytes, "most": 7, "seconds": {"default": 2e-5}, "best": best, "selected": selected, "gain": gain}


MEASURED = {
    "allreduce": [point(8, "default", None, 1.0), point(16, "ring", None, 1.06)],
    "bcast": [point(8, "a", "a", 2.0)],
}


def test_all_points_are_listed():
    rows = [line.split() for line in command.all_points(MEASURED).splitlines()[2:]]
    assert [" ".join(row) for row in rows] == [
        "allreduce 8 B 20.00 default 1.00",
        "allreduce 16 B 20.00 ring 1.06",
        "bcast 8 B 20.00 a 2.00",
    ]


@pytest.mark.parametrize("name", [document.SETTINGS, document.MEASUREMENTS + "/x"])
def test_a_file_that_cannot_be_written(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "measured", lambda *arguments: {"allreduce": MEASURED["allreduce"]})
    monkeypatch.setattr(command, "existing", lambda folder: {"mpi": native.library(), "measurements": []})
    (tmp_path / name).mkdir(parents=True)
    options = argparse.Namespace(export=THIS, output=tmp_path, primitives=["allreduce"], sizes=[8], budget=1.0)
    with pytest.raises(SystemExit) as end:
        command.export(WORLD, options)
    assert end.value.code == 1
    path = re.escape(str(tmp_path / name.split("/")[0]))
    assert re.fullmatch(f".*: -o .*: {path}: .*\\n" if RANK == 0 else "", capsys.readouterr().err)
    assert [one.name for one in tmp_path.iterdir()] == [name.split("/")[0]]

"""What prevents an export is said before anything is measured or written."""

import json
import os

import pytest

from pycoll.runtime import native
from pycoll.tune.export import document
from pycoll.tune.export.command import problem

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

"""Type checkers accept correct programs and reject wrong ones, and the stub file matches the package at run time."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from mpi4py import MPI

import pycoll
from pycoll.arguments.ops import BY_NAME, OpName
from pycoll.primitives import names
from pycoll.runtime.front import METHODS
from tests.launch import alone

PROGRAM = Path(__file__).parents[1] / "typed_program.py"
PROGRAMS = Path(__file__).parent / "programs"

REJECTED = """
import numpy as np
import pycoll
from mpi4py import MPI
a = np.ones(4)
comm = pycoll.Comm(MPI.COMM_WORLD)
pycoll.allreduce(a, algorithm="rign")  # "algorithm"
pycoll.bcast(a, algorithm="double_tree")  # "algorithm"
pycoll.iallreduce(a, algorithm="rign")  # "algorithm"
pycoll.allreduce_init(a, algorithm="rign")  # "algorithm"
comm.Allreduce(a, a, algorithm="rign")  # "algorithm"
comm.Iallreduce(a, a, algorithm="rign")  # "algorithm"
comm.Iallreduce(a, a, op="summ")  # "op"
comm.Allreduce_init(a, a, algorithm="rign")  # "algorithm"
pycoll.neighbor_allgather(a, comm=comm, algorithm="combining")  # "algorithm"
comm.Iallreduce(a, y=a)  # "y"
pycoll.allreduze(a)  # attribute "allreduze"
pycoll.allreduce(a, algoritm="ring")  # "algoritm"
pycoll.allreduce(a, op="summ")  # "op"
pycoll.iallreduce(a, op="summ")  # "op"
pycoll.allreduce_init(a, op="summ")  # "op"
pycoll.trace.faze("forward")  # attribute "faze"
pycoll.trace("DIR", event=1000)  # "event"
pycoll.simulate("bcast", algorithm="ring", ranks="4", nbytes=8)  # "ranks"
pycoll.simulate.Netwrk()  # attribute "Netwrk"
"""


def checked(tmp_path, program):
    """Return the errors that mypy reports for a program, by line number."""
    pytest.importorskip("mypy")
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"]
    command += ["--show-error-codes", "--cache-dir", str(tmp_path.parent / "mypy"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    lines = [line.split(":", 2) for line in done.stdout.splitlines() if ": error:" in line]
    return {int(number): text for _, number, text in lines}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("imported", ["", "import pycoll.simulate\nimport pycoll.synthesize\nimport pycoll.trace"])
def test_right_programs_are_accepted(tmp_path, imported):
    names = [
        f"pycoll.{module}.{name}"
        for module in ("trace", "simulate", "synthesize")
        for name in getattr(pycoll, module).__all__
    ]
    attributes = "\n".join([*names, *(f"pycoll.{name}" for name in pycoll.__all__)])
    text = (PROGRAMS / "typed_calls.py").read_text().replace("import pycoll\n", f"import pycoll\n{imported}\n")
    assert not checked(tmp_path, text + attributes)


@pytest.mark.timeout(300)
def test_wrong_programs_are_rejected(tmp_path):
    found = checked(tmp_path, REJECTED)
    for number, line in enumerate(REJECTED.splitlines(), 1):
        _, _, complaint = line.partition("# ")
        assert complaint in found.get(number, "" if complaint else complaint), f"{line}: {found.get(number)}"
        assert bool(complaint) == (number in found), f"{line}: {found.get(number)}"


def test_a_program_that_uses_all_public_names_is_accepted(tmp_path):
    text = PROGRAM.read_text()
    used = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pycoll"
    }
    assert not set(pycoll.__all__) - used
    assert not checked(tmp_path, text)


def test_pyright_accepts_it_too(tmp_path):
    pytest.importorskip("basedpyright")  # pyright, with Node.js in its wheels
    settings = {"extraPaths": [str(PROGRAM.parents[1])], "typeCheckingMode": "strict"}
    for name, more in ((PROGRAM.name, ""), ("wrong.py", "\npycoll.allreduce(A, op='summ')\n")):
        (tmp_path / name).write_text(PROGRAM.read_text() + more)
        (tmp_path / "pyrightconfig.json").write_text(json.dumps({**settings, "include": [name]}))
        command = [sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert done.returncode == bool(more), done.stdout + done.stderr
        assert ("summ" in done.stdout) == bool(more), done.stdout


def test_the_names_of_operations_are_those_that_there_are():
    assert set(get_args(OpName)) == set(BY_NAME)


def test_type_checkers_know_the_names_of_algorithms():
    assert Path(names.__file__).with_suffix(".pyi").read_text() == names.stub(), names.__doc__


@pytest.mark.parametrize("method", METHODS)
def test_the_forms_of_a_method_have_its_parameters(method):
    """The persistent form has `info` too, as in mpi4py, and all are parameters of the method of mpi4py."""
    blocking, begun, persistent = (
        list(inspect.signature(getattr(pycoll.Cartcomm, name)).parameters.values())
        for name in (method, f"I{method.lower()}", f"{method}_init")
    )
    assert begun == [one for one in persistent if one.name != "info"] == blocking
    assert blocking[-1].name == "algorithm" and blocking[-1].kind is inspect.Parameter.KEYWORD_ONLY
    theirs = inspect.signature(getattr(MPI.Cartcomm, f"{method}_init")).parameters.values()
    assert [(one.name, one.default) for one in theirs] == [(one.name, one.default) for one in persistent[:-1]]


@pytest.mark.parametrize("first", ["import", "from", "with"])
def test_modules_that_can_be_called(first):
    done = alone([PROGRAMS / "callable_modules.py", first])
    assert done.returncode == 0, done.stderr


def test_all_public_names_can_be_imported():
    assert all(getattr(pycoll, name) is not None for name in pycoll.__all__)
    assert {"simulate", "trace", "allreduce", "AVG"} <= set(pycoll.__all__) <= set(dir(pycoll))
    assert not {"types", "typing", "_trace", "_Trace"} & set(dir(pycoll))

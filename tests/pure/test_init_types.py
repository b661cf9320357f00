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

PROGRAM = Path(__file__).parents[1] / "typed_program.py"

ACCEPTED = """
import numpy as np
import pycoll
{imported}
from mpi4py import MPI
from pycoll.simulate import Network

a = np.ones(4)
pycoll.allreduce(a, op="max", algorithm="ring")
pycoll.allreduce(a, op=pycoll.AVG)
pycoll.iallreduce(a, op=MPI.SUM).wait()
for name in pycoll.algorithms("allreduce"):
    pycoll.allreduce(a, algorithm=name)
with pycoll.trace("DIR", events=1000), pycoll.trace.phase("forward"):
    pass
network: Network = pycoll.simulate.Network(pycoll.simulate.Link(alpha=1e-6))
pycoll.allreduce(a, algorithm=pycoll.AlgorithmName(input()))
pycoll.reduce_scatter(a, algorithm="pairwise")
pycoll.iallgather(a, algorithm="bruck").wait()
pycoll.bcast_init(a, algorithm="native").Start()
comm = pycoll.Comm(MPI.COMM_WORLD)
comm.Allreduce(a, a, op="max", algorithm="ring")
request: pycoll.Request = comm.Iallreduce(a, a, op="max", algorithm="ring")
plain: pycoll.Request = comm.Ibcast([a, MPI.DOUBLE], 0)
pycoll.waitall([request, plain, comm.Ibarrier(algorithm="tree")])
persistent: pycoll.Persistent = comm.Allreduce_init(a, a, MPI.SUM, MPI.INFO_NULL, algorithm="ring")
with comm.Gatherv_init(a, None, root=1, algorithm="tree") as gathering:
    gathering.Start()
seconds: float = pycoll.simulate("bcast", algorithm="ring", ranks=4, nbytes=8, network=network).time
{attributes}
"""

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
    assert not checked(tmp_path, ACCEPTED.format(imported=imported, attributes=attributes))


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


@pytest.mark.parametrize("first", ["", "import pycoll.trace, pycoll.simulate;", "from pycoll import trace, simulate;"])
def test_modules_that_can_be_called(first):
    program = f"""
{first}
import sys, types, pycoll
assert not {bool(first)} or "pycoll.trace" in sys.modules
assert {bool(first)} or not [name for name in sys.modules if name.startswith(("pycoll.trace", "pycoll.simulate"))]
for name in "trace", "simulate":
    module = getattr(pycoll, name)
    assert module is sys.modules["pycoll." + name] and isinstance(module, types.ModuleType) and callable(module)
assert pycoll.trace.phase is sys.modules["pycoll.trace"].phase
assert pycoll.simulate("barrier", algorithm="tree", ranks=2, nbytes=0).time > 0
assert "mpi4py" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_all_public_names_can_be_imported():
    assert all(getattr(pycoll, name) is not None for name in pycoll.__all__)
    assert {"simulate", "trace", "allreduce", "AVG"} <= set(pycoll.__all__) <= set(dir(pycoll))
    assert not {"types", "typing", "_trace", "_Trace"} & set(dir(pycoll))

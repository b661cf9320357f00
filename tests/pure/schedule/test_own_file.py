"""The option ``--file`` of the commands, for algorithms in files of users."""

import subprocess
import sys

import pytest

from tests.quick import quick

HEAD = """
from pycoll.schedule.moves import Recv, Send
from pycoll.schedule.registry import algorithm

@algorithm()
def relay(rank, size, root):
"""

RIGHT = """
    place = (rank - root) % size
    if place > 0:
        yield (Recv((rank - 1) % size, [0]),)
    if place < size - 1:
        yield (Send((rank + 1) % size, [0]),)
"""

WRONG = {  # what the file is wrong in, and what is said about it
    "    yield (Send([][rank], [0]),)": "IndexError: list index out of range (FILE, line 7)",
    "    if rank != root:\n        yield (Recv(root, [0]),)": "a message that no one sends: rank 1 waits for rank 0",
    "    Send(0, [0])": "rank 0: the schedule is not a generator, because it has no yield",
}
COMMANDS = {"prove": ["-n", "2"], "draw": ["-n", "2"], "simulate": ["-n", "2", "-a", "relay"]}


def command(name, *arguments):
    job = [sys.executable, "-m", f"pycoll.{name}", *map(str, arguments)]
    return subprocess.run(job, capture_output=True, text=True, timeout=120)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "bcast.py"


def test_own_algorithms_in_all_commands(file):
    file.write_text(HEAD + RIGHT)
    drawn = command("draw", "--file", file, "-n", "3")
    assert drawn.returncode == 0 and "bcast.relay on 3 ranks" in drawn.stdout, drawn.stderr
    assert command("draw", "bcast", "relay", "--file", file, "-n", "3").stdout == drawn.stdout
    everything = command("simulate", "--file", file, "-n", "100")
    assert everything.returncode == 0 and {"relay", "ring"} <= set(everything.stdout.split()), everything.stderr
    one = command("simulate", "--file", file, "bcast", "relay", "-n", "1")
    assert one.returncode == 0 and "ring" not in one.stdout, one.stderr


@pytest.mark.parametrize("body", WRONG)
@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_algorithms(file, name, body):
    file.write_text(HEAD + body)
    done = command(name, "--file", file, *COMMANDS[name])
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert WRONG[body].replace("FILE", str(file)) in done.stdout + done.stderr


@pytest.mark.parametrize(
    "name, arguments, sizes", quick(("draw", "", "True"), ("simulate", "-n 65 -a relay", "size > 64"))
)
def test_a_schedule_that_never_yields(file, name, arguments, sizes):
    file.write_text(f"{HEAD}    while {sizes}:\n        pass\n{RIGHT}")
    done = command(name, "--file", file, *arguments.split())
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1
    assert "no round within 5 s: does the schedule ever yield?" in done.stderr
    lines = [f"({file}, line {line})" for line in (7, 8)]  # of the loop
    assert name == "simulate" or any(line in done.stderr for line in lines)


@pytest.mark.parametrize(
    "name, text, complaint",
    [
        ("prove", "x = 1", " registers no algorithm\n"),
        ("draw", "import nothing_like_it", ", line 1: ModuleNotFoundError: No module named 'nothing_like_it'\n"),
        ("simulate", "x = (", ": SyntaxError: '(' was never closed (bcast.py, line 1)\n"),
        ("prove", "x = undefined", ", line 1: NameError: name 'undefined' is not defined\n"),
        ("draw", HEAD.replace("relay", "ring"), ", line 5: ValueError: ring is the name of an algorithm of pycoll"),
        ("simulate", HEAD.replace("size", "p"), ", line 5: TypeError: relay has no default for p; pycoll passes only"),
    ],
)
def test_wrong_files(file, name, text, complaint):
    file.write_text(text + RIGHT * text.startswith(HEAD[:9]))
    done = command(name, "--file", file)
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"python -m pycoll.{name}: --file {file}{complaint}"), done.stderr


def test_a_drawing_of_all_algorithms_has_no_file(file):
    file.write_text(HEAD + RIGHT)
    done = command("draw", "--all", "--file", file, "-o", file.parent)
    assert done.returncode == 2 and "--all cannot be combined with --file" in done.stderr

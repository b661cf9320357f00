"""``python -m pycoll.export``: JSON that the prover reads, GOAL, and errors in one line."""

import re
import subprocess
import sys

import pytest

from pycoll.export import goal
from pycoll.schedule.registry import find


def command(module, *arguments, folder=None):
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def test_a_round_trip(tmp_path):
    assert command("pycoll.export", "bcast", "tree", "-n", "5", "-r", "2", "-o", "mine.json", folder=tmp_path)[0] == 0
    code, output, _ = command("pycoll.prove", "--import", "mine.json", folder=tmp_path)
    assert (code, output) == (0, "bcast.mine  1 schedule proved\n")
    code, output, _ = command(
        "pycoll.simulate", "bcast", "mine", "--file", "mine.json", "-n", "5", "-r", "2", folder=tmp_path
    )
    assert code == 0 and "mine" in output
    code, _, error = command("pycoll.simulate", "bcast", "mine", "--file", "mine.json", "-n", "4", folder=tmp_path)
    assert code != 0 and "mine is a schedule for 5 ranks and root 2, not for 4 ranks and root 0" in error


def test_more_ranks_than_are_proved_of_other_algorithms(tmp_path):
    command("pycoll.export", "allreduce", "recursive_doubling", "-n", "70", "-o", "many.json", folder=tmp_path)
    code, output, error = command("pycoll.simulate", "allreduce", "many", "--file", "many.json", folder=tmp_path)
    assert code == 0 and "many" in output, error
    code, _, error = command("pycoll.prove", "--import", "many.json", "-n", "5", folder=tmp_path)
    assert code == 2 and error.endswith("allreduce.many is a schedule for 70 ranks\n")


def test_goal():
    lines = list(goal(find("allreduce", "ring"), 3, 0, 1, None, 3000))
    assert lines[0] == "num_ranks 3"
    sent = re.findall(r"rank (\d) {|: send 1000b to (\d)", "\n".join(lines))
    assert [to for _, to in sent if to] == ["1"] * 4 + ["2"] * 4 + ["0"] * 4
    text = "\n".join(lines)
    assert text.count("recv 1000b") == 12 and text.count("calc 100") == 6  # at 0.1 ns for each byte
    labels = set(re.findall(r"^(l\d+):", text, re.MULTILINE))
    assert set(re.findall(r"^(l\d+) requires (l\d+)", text, re.MULTILINE)) >= {("l4", "l1"), ("l4", "l3"), ("l3", "l2")}
    assert {label for pair in re.findall(r"(l\d+) requires (l\d+)", text) for label in pair} <= labels


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["bcast", "tree", "-n", "0"], "-n 0 is less than 1"),
        (["bcast", "tree", "-n", "4", "-r", "4"], "-r 4 is not one of 4 ranks"),
        (["bcast", "trees", "-n", "4"], "algorithm='trees' is not one of the algorithms of bcast"),
        (["alltoallv", "tree", "-n", "4"], "alltoallv.tree sends counts of blocks first"),
        (["bcast", "tree", "-n", "4", "-o", "/nowhere/x.json"], "/nowhere/"),
    ],
)
def test_errors_are_one_line(arguments, error):
    code, output, text = command("pycoll.export", *arguments)
    assert code == 2 and not output and error in text.splitlines()[-1]

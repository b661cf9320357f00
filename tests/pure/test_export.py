"""``python -m pycoll.export``: files that the prover reads, and errors in one line."""

import subprocess
import sys

import pytest


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
    code, output, _ = command("pycoll.draw", "--file", "mine.json", folder=tmp_path)
    assert code == 0 and "bcast.mine on 5 ranks, root 2" in output
    code, _, error = command("pycoll.simulate", "bcast", "mine", "--file", "mine.json", "-n", "4", folder=tmp_path)
    assert code != 0 and "mine is a schedule for 5 ranks and root 2, not for 4 ranks and root 0\n" in error


def test_more_ranks_than_are_proved_of_other_algorithms(tmp_path):
    command("pycoll.export", "allreduce", "recursive_doubling", "-n", "70", "-o", "many.json", folder=tmp_path)
    code, output, error = command("pycoll.simulate", "allreduce", "many", "--file", "many.json", folder=tmp_path)
    assert code == 0 and "many" in output, error
    code, _, error = command("pycoll.prove", "--import", "many.json", "-n", "5", folder=tmp_path)
    assert code == 2 and error.endswith("allreduce.many is a schedule for 70 ranks\n")


@pytest.mark.parametrize(
    ("format", "file", "proved"),
    [
        ("msccl", "mine.xml", "allreduce.mine  1 schedule proved\n"),
        ("mscclpp", "mine.json", "allreduce.mine  1 schedule proved\n"),
        ("chakra", "mine.et", "allreduce.mine  1 schedule proved\n"),
        (
            "goal",
            "mine.goal",
            "mine.goal: all 12 messages between 3 ranks match, and all operations end; GOAL has no blocks",
        ),
    ],
)
def test_other_formats(format, file, proved, tmp_path):
    code, output, error = command(
        "pycoll.export", "allreduce", "ring", "-n", "3", "-f", format, "-o", file, folder=tmp_path
    )
    assert code == 0 and output.startswith("written to mine."), error
    for name in (file, "mine.1.et") if format == "chakra" else (file,):
        code, output, error = command("pycoll.prove", "--import", name, folder=tmp_path)
        assert code == 0 and output.startswith(proved), error
    code, output, error = command("pycoll.draw", "--file", file, folder=tmp_path)  # on 3 ranks
    assert (code == 0 and "mine" in output) or (format == "goal" and "GOAL has no blocks" in error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["bcast", "tree", "-n", "0"], "-n 0 is less than 1"),
        (["bcast", "tree", "-n", "4", "-r", "4"], "-r 4 is not one of 4 ranks"),
        (["bcast", "trees", "-n", "4"], "algorithm='trees' is not one of the algorithms of bcast"),
        (["alltoallv", "tree", "-n", "4"], "alltoallv.tree sends counts of blocks first"),
        (["bcast", "tree", "-n", "4", "-o", "/nowhere/x.json"], "-o /nowhere/x.json: no such directory"),
        (["bcast", "tree", "-n", "4", "-f", "goal", "-o", "x.json"], "-o x.json does not end in .goal"),
        (["neighbor_alltoall", "direct", "-n", "4"], "primitive='neighbor_alltoall' is not one of: bcast, "),
        (["bcast", "tree", "-n", "4", "-f", "msccl"], "MSCCL has no name for bcast: it expresses allreduce, allgather"),
        (["bcast", "tree", "-n", "4", "-f", "chakra"], "-f chakra has a file for each rank: choose their name with -o"),
    ],
)
def test_errors_are_one_line(arguments, error):
    code, output, text = command("pycoll.export", *arguments)
    assert code == 2 and not output and error in text.splitlines()[-1]


def test_a_truncated_file_is_not_json(tmp_path):
    (tmp_path / "cut.json").write_text('{"schedule": 1,')
    code, output, error = command("pycoll.prove", "--import", "cut.json", folder=tmp_path)
    assert code == 2 and not output
    assert error.startswith("python -m pycoll.prove: --file cut.json: it is not JSON: Expecting property name")

"""The GPT in examples/gpt: every kind of parallelism equals one process; errors."""

import re
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

GPT = str(Path(__file__).parents[2] / "examples" / "gpt")
CHECKED = r"largest difference of the first \d+ losses from one process: (\S+)"


@pytest.mark.parametrize(
    "ranks, options",
    quick(
        (4, "--dp 2 --tp 2"),
        (2, "--sp 2"),
        (2, "--pp 2"),
        (2, "--ep 2 --experts 4"),
        (2, "--dp 2"),
        (2, "--tp 2"),
        (2, "--sp 2 --attention ulysses"),
        (2, "--pp 2 --micro-batches 4 --experts 2"),
        (4, "--dp 2 --ep 2 --experts 4"),
        (4, "--ep 2 --tp 2 --experts 2"),
        (4, "--pp 2 --sp 2 --attention ulysses"),
    ),
)
def test_all_kinds_equal_one_process(ranks, options):
    job = run(ranks, [GPT, *options.split(), "--steps", "10", "--check"])
    assert job.code == 0, job.output
    assert float(re.search(CHECKED, job.output)[1]) < 1e-12
    assert job.output.count("step ") == 1, job.output


@pytest.mark.once
@pytest.mark.parametrize(
    "options, error",
    quick(
        ("--tp 3", "tp=3 needs 3 ranks, but there are 2"),
        ("--tp 0", "argument --tp: '0' is not a positive number"),
        ("--micro-batches 5", "24 sequences of a batch cannot be divided equally over dp=2 * ep=1 * micro-batches=5"),
        ("--ep 2 --experts 3", "3 experts cannot be divided equally over ep=2"),
        ("--ep 2", "--ep 2 needs --experts"),
        ("--sp 2 --experts 2 --check", "--check with experts needs sp=1: each rank limits the rows of its positions"),
        ("--text nowhere", "--text nowhere: No such file or directory"),
        ("--text /dev/null", "--text /dev/null: 0 characters are too few; at least 33 are needed"),
    ),
)
def test_wrong_options_are_one_line(options, error):
    job = run(2, [GPT, *options.split()])
    assert job.code != 0
    lines = [line for line in job.output.splitlines() if line.startswith("gpt: ")]
    assert lines == [f"gpt: {error}"], job.output
    assert "Traceback" not in job.output and "usage" not in job.output

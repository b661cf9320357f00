"""``python -m pycoll.info``, run from the command line."""

import re

from tests.launch import run


def test_it_says_what_all_ranks_run_on():
    job = run(2, ["-m", "pycoll.info"], 60)
    assert job.code == 0, job.output
    assert job.output.count("pycoll: ") == 1 and "\nranks: 2\n" in job.output
    assert re.search(r"memory that ranks of a host share: (used|not used: .+)\n", job.output), job.output
    assert "warning" not in job.output


def test_it_warns_of_unknown_variables():
    job = run(2, ["-m", "pycoll.info"], 60, environment={"PYCOLL_ALREDUCE": "ring"})
    assert job.code == 0, job.output
    warning = (
        "warning: the environment variable PYCOLL_ALREDUCE is not known and has no effect; is it PYCOLL_ALLREDUCE?"
    )
    assert job.output.count(warning) == 1, job.output


def test_help_is_printed_once():
    job = run(2, ["-m", "pycoll.info", "--help"], 60)
    assert job.code == 0, job.output
    assert job.output.count("usage: python -m pycoll.info") == 1
    assert "ranks:" not in job.output


def test_options_that_there_are_not():
    job = run(2, ["-m", "pycoll.info", "--verbose"], 60)
    assert job.code != 0
    assert job.output.count("python -m pycoll.info: unrecognized arguments: --verbose") == 1

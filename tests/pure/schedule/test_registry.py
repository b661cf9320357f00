"""Algorithms registered by user programs."""

import os
import re
from pathlib import Path

import pytest

import pycoll
from pycoll.schedule.registry import algorithm, find, find_schedule, has_algorithm
from tests.launch import ENVIRONMENT, alone

PROGRAMS = Path(__file__).parent / "programs"
OWN = (PROGRAMS / "allreduce.py").read_text()
LINE = OWN.splitlines().index("@algorithm()") + 1


def imports(folder, program, *arguments):
    """Return the standard error of a program that imports a file in a folder."""
    path = os.pathsep.join([str(folder), ENVIRONMENT["PYTHONPATH"]])
    return alone(["-c", program, *arguments], PYTHONPATH=path).stderr


@pytest.mark.parametrize("program", ["registered_first.py", "defined_again.py"])
def test_an_own_algorithm_stands_beside_the_others(program):
    done = alone([PROGRAMS / program])
    assert done.returncode == 0, done.stderr


def test_a_name_that_the_file_already_defines(tmp_path):
    (tmp_path / "barrier.py").write_text(OWN.replace("@algorithm()", "def own():\n    pass\n\n\n@algorithm()"))
    why = "ValueError: the file of barrier already defines own: choose another name\n"
    assert imports(tmp_path, "import barrier").endswith(why)


@pytest.mark.parametrize(
    "file, name, taken",
    [
        ("allreduce", "ring", "an algorithm of pycoll"),
        ("reduce_scatter", "recursive_halving", "an algorithm of pycoll"),
        ("allgatherv", "ring", "an algorithm of pycoll"),
        ("bcast", "knomial", "a family of algorithms of pycoll"),
        ("bcast", "native", "the collective of the MPI library"),
    ],
)
@pytest.mark.parametrize("first", ["", "import pycoll; pycoll.algorithms(sys.argv[1]); "])
def test_a_name_of_the_package(tmp_path, file, name, taken, first):
    (tmp_path / f"{file}.py").write_text(OWN.replace("def own", f"def {name}"))
    errors = imports(tmp_path, f"import sys; {first}import {file}", file)
    complaint = f"ValueError: {name} is the name of {taken} for {file}: choose another name\n"
    assert f'{tmp_path / file}.py", line {LINE}' in errors and errors.endswith(complaint), errors


@pytest.mark.parametrize(
    "parameters, wrong",
    [("rank, p", "p"), ("rank, size, *, roots", "roots"), ("rank, size, tag, order", "tag, order"), ("r, /", "r")],
)
def test_a_parameter_that_is_not_known(tmp_path, parameters, wrong):
    (tmp_path / "bcast.py").write_text(OWN.replace("rank, size", parameters))
    errors = imports(tmp_path, "import bcast")
    why = f"TypeError: own has no default for {wrong}; "
    why += "pycoll passes only rank, size, root, segments, hosts, k by name\n"
    assert f'{tmp_path / "bcast.py"}", line {LINE}' in errors and errors.endswith(why), errors


def test_a_cut_that_is_no_function():
    with pytest.raises(TypeError, match=r"cut must be a function, for example .*per_rank, not 'whole'"):
        algorithm(cut="whole")


def test_a_number_in_the_name():
    assert {"knomial:4", "knomial:8"} <= set(pycoll.algorithms("bcast"))
    three = find("bcast", "knomial:3")
    assert (three.name, three.k, three.stem) == ("knomial:3", 3, "bcast-knomial-3")
    assert three is find("bcast", "knomial:3") and "knomial:3" not in pycoll.algorithms("bcast")
    assert find("bcast", "knomial:4") is find_schedule("bcast", "knomial:4")


@pytest.mark.parametrize(
    "name, why",
    [
        ("knomial", "the number is missing"),
        ("knomial:", "the number is missing"),
        ("knomial:1", "'1' is not an integer of at least 2"),
        ("knomial:-4", "'-4' is not an integer of at least 2"),
        ("knomial:04", "'04' is not an integer of at least 2"),
        ("knomial:four", "'four' is not an integer of at least 2"),
        ("knomial:4:4", "'4:4' is not an integer of at least 2"),
        ("tree:4", "algorithm='tree:4' is not one of the algorithms of bcast: naive, tree, ring, knomial:4, "),
    ],
)
def test_a_wrong_number_in_the_name(name, why):
    with pytest.raises(
        ValueError, match=f"algorithm={name!r} is not .*{re.escape(why)}" if "tree" not in name else why
    ):
        find("bcast", name)
    assert not has_algorithm("bcast", name)


def test_a_family_without_numbers():
    def lacking(rank, size, k):
        yield ()

    lacking.__module__ = "pycoll.primitives.bcast"
    with pytest.raises(ValueError, match=r"lacking has the parameter k: list some of its numbers"):
        algorithm()(lacking)


def test_threads_see_all_algorithms():
    """Also while another thread imports the file of a primitive."""
    done = alone([PROGRAMS / "threads.py"])
    assert done.returncode == 0, done.stderr

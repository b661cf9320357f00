"""Algorithms registered by user programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pycoll
from pycoll.schedule.registry import algorithm, find, find_schedule, has_algorithm

OWN = """
from pycoll.schedule.registry import algorithm, find, find_schedule, has_algorithm

@algorithm()
def own(rank, size):
    yield ()
"""

TAKEN = """
from pycoll.schedule.registry import algorithm, find, find_schedule, has_algorithm

def helper(rank):
    return rank

@algorithm()
def helper(rank, size):
    yield ()
"""

PROGRAM = """
import allreduce  # registers an algorithm before anything else asks for those of the package
from pycoll.schedule.registry import algorithms_of, find

assert {"own", "ring", "recursive_doubling"} <= set(algorithms_of("allreduce"))
assert find("allreduce", "own").generator is allreduce.own
assert find("allreduce", "ring").generator.__module__ == "pycoll.primitives.allreduce"
"""


def test_an_own_algorithm_stands_beside_the_others(tmp_path):
    (tmp_path / "allreduce.py").write_text(OWN)
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join([str(Path(pycoll.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(tmp_path / "program.py")]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": path})


def test_a_name_that_the_file_already_defines(tmp_path):
    (tmp_path / "barrier.py").write_text(TAKEN)
    path = os.pathsep.join([str(Path(pycoll.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", "import barrier"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    assert done.stderr.endswith("ValueError: the file of barrier already defines helper: choose another name\n")


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
    path = os.pathsep.join([str(Path(pycoll.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", f"import sys; {first}import {file}", file]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    complaint = f"ValueError: {name} is the name of {taken} for {file}: choose another name\n"
    assert f'{tmp_path / file}.py", line 4' in done.stderr and done.stderr.endswith(complaint), done.stderr


def test_own_algorithms_can_be_defined_again(tmp_path):
    (tmp_path / "allreduce.py").write_text(OWN)
    path = os.pathsep.join([str(Path(pycoll.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    program = "import allreduce, importlib, pycoll.primitives.barrier as theirs; importlib.reload(allreduce); "
    program += "importlib.reload(theirs)"
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment, cwd=tmp_path)


@pytest.mark.parametrize(
    "parameters, wrong",
    [("rank, p", "p"), ("rank, size, *, roots", "roots"), ("rank, size, tag, order", "tag, order"), ("r, /", "r")],
)
def test_a_parameter_that_is_not_known(tmp_path, parameters, wrong):
    (tmp_path / "bcast.py").write_text(OWN.replace("rank, size", parameters))
    path = os.pathsep.join([str(Path(pycoll.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", "import bcast"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    why = f"TypeError: own has no default for {wrong}; "
    why += "pycoll passes only rank, size, root, segments, hosts, k by name\n"
    assert f'{tmp_path / "bcast.py"}", line 4' in done.stderr and done.stderr.endswith(why), done.stderr


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


THREADS = """
import threading, time
from pycoll.schedule import registry

before, found = registry.parameters_of, []
registry.parameters_of = lambda generator: time.sleep(5e-3) or before(generator)
threads = [threading.Thread(target=lambda: found.append(len(registry.algorithms_of("alltoall")))) for _ in range(20)]
for thread in threads:
    thread.start()
    time.sleep(8e-3)
for thread in threads:
    thread.join()
assert len(found) == 20 and len(set(found)) == 1, found
"""


def test_threads_see_all_algorithms():
    """Also while another thread imports the file of a primitive."""
    subprocess.run([sys.executable, "-c", THREADS], check=True, timeout=60)

"""Algorithms registered by user programs."""

import os
import subprocess
import sys
from pathlib import Path

import pycoll

OWN = """
from pycoll.schedule.registry import algorithm

@algorithm()
def own(rank, size):
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

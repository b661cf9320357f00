"""The error message when the requirements of the benchmark are not installed."""

import os
import subprocess
import sys

import pytest

WITHOUT = """
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name: None if name == "threadpoolctl" else found(name)
"""
PROGRAM = WITHOUT + "import pycoll.bench"


def test_what_is_missing_is_named():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "ModuleNotFoundError: python -m pycoll.bench needs threadpoolctl: pip install 'pycoll-mpi[bench]', "
        "or in a checkout pip install '.[bench]'\n"
    )


@pytest.mark.parametrize(
    "module",
    ["pycoll.bench", "pycoll.bench.report", "pycoll.bench.calls", "pycoll.bench.programs", "pycoll.bench.train"],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_command_prints_one_line_on_rank_0(module, rank):
    program = f"{WITHOUT}import runpy, sys\nsys.argv = ['-m']\nrunpy.run_module({module!r}, run_name='__main__')"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PMI_RANK": str(rank)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    expected = "python -m pycoll.bench needs threadpoolctl: pip install 'pycoll-mpi[bench]', or in a checkout "
    assert done.returncode == 1
    assert done.stderr == (expected + "pip install '.[bench]'\n" if rank == 0 else "")

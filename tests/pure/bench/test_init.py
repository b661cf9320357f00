"""The error message when the requirements of the benchmark are not installed."""

import subprocess
import sys

PROGRAM = """
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name: None if name == "threadpoolctl" else found(name)
import bench
"""


def test_what_is_missing_is_named():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "ModuleNotFoundError: the benchmarks need threadpoolctl: install pycoll with the extra `bench`\n"
    )

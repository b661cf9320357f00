"""Importing `pycoll.torch` where a package that it needs is missing."""

import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")


@pytest.mark.parametrize("missing", ["torch", "psutil"])
def test_a_missing_package(missing):
    if missing != "torch":
        pytest.importorskip("torch")
    program = f"import sys; sys.modules[{missing!r}] = None; import pycoll.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    last = done.stderr.splitlines()[-1]
    assert f"pycoll.torch needs {missing}, which is not installed: pip install 'pycoll-mpi[torch]'" in last
    assert done.stderr.count("Traceback") == 1

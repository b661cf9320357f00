"""Imports and host collectives without CuPy."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")


def test_cupy_is_not_imported_before_it_is_needed(tmp_path):
    """Check that neither pycoll nor collectives on host buffers import CuPy."""
    (tmp_path / "cupy.py").write_text("raise SystemExit('cupy was imported')")
    program = (
        "import numpy as np, pycoll, sys; pycoll.allreduce(np.ones(3)); pycoll.Comm\n"
        "from pycoll import parallel, select_device; assert 'cupy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": f"{tmp_path}:."})

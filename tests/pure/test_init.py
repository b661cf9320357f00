"""Schedules, proofs and simulation without MPI, and the public names."""

import subprocess
import sys

import pytest

import pycoll


def test_schedules_do_not_load_mpi():
    program = (
        "import sys, pycoll, pycoll.costs, pycoll.compiler.programs;"
        "from pycoll.schedule.proof import prove; from pycoll.schedule.registry import find;"
        "prove(find('allreduce', 'ring'), 4);"
        "pycoll.simulate('allreduce', algorithm='ring', ranks=4, nbytes=8);"
        "import pycoll.draw.__main__, pycoll.prove, pycoll.simulate.__main__;"
        "assert not any(name.startswith('mpi4py') for name in sys.modules), 'mpi4py was loaded'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_public_names():
    assert {"allreduce", "bcast", "AVG", "abort_on_exception", "sendrecv", "algorithms"} <= set(dir(pycoll))
    with pytest.raises(AttributeError, match=r"^module 'pycoll' has no attribute 'allredcue'$"):
        pycoll.allredcue  # noqa: B018


def test_torch_is_not_loaded():
    program = "import sys, pycoll; from pycoll import parallel, simulate; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

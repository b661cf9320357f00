"""The error message when the requirements of the benchmark are not installed."""

from pathlib import Path

import pytest

from tests.launch import alone

PROGRAM = Path(__file__).parent / "programs" / "without_threadpoolctl.py"


def test_what_is_missing_is_named():
    done = alone([PROGRAM])
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
    done = alone([PROGRAM, module], PMI_RANK=str(rank))
    expected = "python -m pycoll.bench needs threadpoolctl: pip install 'pycoll-mpi[bench]', or in a checkout "
    assert done.returncode == 1
    assert done.stderr == (expected + "pip install '.[bench]'\n" if rank == 0 else "")

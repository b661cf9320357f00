"""Assignment of GPUs to ranks."""

import pytest

pytest.importorskip("mpi4py")

from pycoll.runtime.gpu.select import share_out


@pytest.mark.parametrize(
    "seen, numbers",
    [
        ([["a", "b"]] * 2, [0, 1]),
        ([["a", "b"]] * 5, [0, 1, 0, 1, 0]),
        ([["a"], ["b"], ["c"]], [0, 0, 0]),  # each rank sees only its own GPU, as under Slurm
        ([["a", "b"], ["a"], ["b", "c"]], [0, 0, 0]),
        ([["a", "b"], ["b", "a"]], [0, 0]),
        ([["a"], []], [0, None]),
    ],
)
def test_who_gets_which_gpu(seen, numbers):
    assert share_out(seen) == numbers
    names = [None if number is None else gpus[number] for gpus, number in zip(seen, numbers)]
    assert share_out(seen, names=True) == names

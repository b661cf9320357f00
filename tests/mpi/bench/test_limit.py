"""The copy limit does the work of the collective."""

import pytest

from pycoll.bench import limit
from pycoll.tune.benchmark_case import IN_PLACE, Case
from tests.mpi.native import RANK, SIZE, WORLD

pytestmark = pytest.mark.mpi(min_size=2)
PLACES = [(name, False) for name in limit.MEASURED if name != "exscan"]
PLACES += [(name, True) for name in limit.MEASURED if name in IN_PLACE and name != "alltoall"]  # that one needs a copy


@pytest.mark.parametrize("primitive, in_place", PLACES)
def test_results_are_those_of_the_collective(primitive, in_place):
    case = Case(WORLD, primitive, 4 * 3000 * SIZE, in_place=in_place, root=SIZE - 1, registered=True)
    if not case.shared:
        case.free()
        pytest.skip("the ranks share no memory")

    def synchronized():
        WORLD.Barrier()
        call()
        WORLD.Barrier()

    call = limit.call(case)
    wrong = case.wrong(synchronized, case.call_native())
    case.free()
    assert wrong == 0, f"{wrong} wrong elements on rank {RANK}"

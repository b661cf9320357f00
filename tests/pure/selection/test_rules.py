import pytest

from pycoll.schedule.registry import PRIMITIVES, find
from pycoll.selection.rules import choose


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_every_choice_exists_and_keeps_order_where_it_must(primitive):
    for size in (1, 2, 3, 4, 5, 8, 16, 100, 128):
        for nbytes in (0, 8, 300, 4096, 1 << 16, 1 << 20, 1 << 26):
            assert find(primitive, choose(primitive, nbytes, size))
            assert find(primitive, choose(primitive, nbytes, size, commutative=False)).ordered


def test_long_vectors_go_round_the_ring():
    assert choose("allreduce", 64 << 20, 4) == "ring" and choose("allreduce", 8, 4) == "recursive_doubling"

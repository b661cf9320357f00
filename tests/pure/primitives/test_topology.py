from itertools import chain

import pytest

from pycoll.primitives.topology import depth, divisions, inorder, knomial
from pycoll.schedule.costs import log


@pytest.mark.parametrize("k", [2, 3, 4, 8, 200])
@pytest.mark.parametrize("size", [*range(1, 34), 100])
def test_knomial_is_a_tree_of_ranges(size, k):
    for root in {0, size // 2, size - 1}:
        nodes = [knomial(rank, size, root, k) for rank in range(size)]
        assert nodes[root].parent is None
        for rank, node in enumerate(nodes):
            covered = [rank]
            for child, ranks in chain(*node.levels):
                assert nodes[child].parent == rank and nodes[child].subtree == ranks
                covered += ranks
            assert sorted(covered) == list(node.subtree)
            assert len(node.levels) <= log(size, k) and all(len(level) < k for level in node.levels)


@pytest.mark.parametrize("size", [*range(1, 34), 100])
@pytest.mark.parametrize("k", [2, 3, 4, 8, 200])
def test_divisions_pair_up(size, k):
    everyone = [divisions(rank, size, k) for rank in range(size)]
    for rank, levels in enumerate(everyone):
        assert len(levels) <= log(size, k)
        for level, one in enumerate(levels):
            assert rank in one.mine and all(source in part for part, source in one.others)
            for _, source in one.others:
                assert rank in everyone[source][level].targets
            for target in one.targets:
                assert rank in [source for _, source in everyone[target][level].others]
        assert k > 2 or sum(len(half.targets) == 2 for half in levels) <= 1


@pytest.mark.parametrize("size", [*range(1, 34), 100])
def test_inorder_is_in_order(size):
    def walk(node):
        _, left, right = inorder(node, size)
        return (walk(left) if left is not None else []) + [node] + (walk(right) if right is not None else [])

    assert walk(0) == list(range(size))
    for node in range(size):
        _, *children = inorder(node, size)
        assert all(inorder(child, size)[0] == node for child in children if child is not None)
        assert depth(node, size) <= 1 + (size - 1).bit_length()

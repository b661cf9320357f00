import math
from itertools import chain, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.primitives.rank_arithmetic import Grid, depth, divisions, domain_tree, inorder, knomial
from pycoll.primitives.swing import bine, distance
from pycoll.schedule.costs import log


@pytest.mark.parametrize("size", [*range(1, 34), 100])
def test_knomial_is_a_tree_of_ranges(size):
    for k, root in product((2, 3, 4, 8, 200), {0, size // 2, size - 1}):
        nodes = [knomial(rank, size, root, k) for rank in range(size)]
        check_tree(nodes, root)
        assert all(isinstance(node.subtree, range) for node in nodes)
        assert all(len(node.levels) <= log(size, k) and all(len(level) < k for level in node.levels) for node in nodes)


@pytest.mark.parametrize("size", [*range(1, 34), 100])
def test_bine_trees(size):
    for root in {0, size // 2, size - 1}:
        nodes = [bine(rank, size, root) for rank in range(size)]
        check_tree(nodes, root)
        assert len(nodes[root].levels) == (size - 1).bit_length()
    if size & (size - 1) == 0:
        away = [(child - root) % size for [(child, _)] in nodes[root].levels]
        assert away == [distance(step) % size for step in reversed(range(len(away)))]


@pytest.mark.parametrize("size", [*range(1, 18), 33])
def test_trees_of_hosts(size):
    nested = tuple((r % 2, r % 3, r * r % 5) for r in range(size))
    for hosts in (None, (0,) * size, tuple(r % 3 for r in range(size)), tuple(r * r % 5 for r in range(size)), nested):
        for root in {0, size // 2, size - 1}:
            check_tree([domain_tree(rank, size, root, hosts) for rank in range(size)], root)


DOMAINS = st.integers(1, 3)


@given(DOMAINS, DOMAINS, DOMAINS, st.randoms())
def test_grids_of_domains(hosts, domains, ranks, random):
    """Each position has a rank, rings close, and lanes are the positions that a ring of the dimension passes on."""
    size = hosts * domains * ranks
    places = [(host, domain) for host in range(hosts) for domain in range(domains) for _ in range(ranks)]
    random.shuffle(places)
    grids = [Grid(rank, size, tuple(places)) for rank in range(size)]
    assert grids[0].sizes == [*[count for count in (hosts, domains) if count > 1], ranks]
    for rank, grid in enumerate(grids):
        assert sorted(grid.ranks) == list(range(size)) and grid.ranks == grids[0].ranks
        for level, count in enumerate(grid.sizes):
            ring = [grid.neighbor(level, step) for step in range(count)]
            assert ring[0] == rank and len(set(ring)) == count and grid.neighbor(level, count) == rank
            covered = [position for number in range(count) for position in grid.lane(level, number)]
            assert len(set(covered)) == len(covered) == math.prod(grid.sizes[: level + 1])
            if level + 1 < len(grid.sizes):
                assert set(covered) == set(grid.lane(level + 1, grid.here[level + 1]))
        last = [grid.neighbor(len(grid.sizes) - 1, step) for step in range(ranks)]
        assert {places[other] for other in last} == {places[rank]}, "the last dimension is inside the smallest domains"


def test_domains_of_different_sizes_make_one_ring():
    places = ((0, 0), (1, 0), (0, 0), (0, 1))
    grid = Grid(3, 4, places)
    assert grid.sizes == [4] and [places[rank] for rank in grid.ranks] == sorted(places)


def check_tree(nodes, root):
    """Check that parents and children agree, and that subtrees consist of a rank and the subtrees of its children."""
    assert nodes[root].parent is None and sorted(nodes[root].subtree) == list(range(len(nodes)))
    for rank, node in enumerate(nodes):
        covered = [rank]
        for child, ranks in chain(*node.levels):
            assert nodes[child].parent == rank and list(nodes[child].subtree) == list(ranks)
            covered += ranks
        assert sorted(covered) == sorted(node.subtree)


@pytest.mark.parametrize("size", [*range(1, 34), 100])
def test_divisions_pair_up(size):
    for k in (2, 3, 4, 8, 200):
        check_divisions(size, k)


def check_divisions(size, k):
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

"""The dynamic rules for Open MPI select what was measured, and leave everything else to the library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.tune.export import ompi
from pycoll.tune.export.rules import Range
from tests.mpi.native import WORLD
from tests.mpi.tune.export.test_mpich import some_ranges

pytestmark = pytest.mark.mpi

ALGORITHMS = {"ignore": 0, "linear": 1, "chain": 2, "pipeline": 3}


class Variables:
    """Control variables of an Open MPI with a few algorithms."""

    def values(self, name):
        return ALGORITHMS

    def get(self, name, default):
        return 4 if name.endswith("bcast_algorithm_chain_fanout") else default


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    monkeypatch.setattr(ompi, "ControlVariables", Variables)


def numbers(text):
    return iter([int(word) for line in text.splitlines() for word in line.partition("#")[0].split()])


def rule_of(words, ranks, nbytes, width):
    """Read the rules for all numbers of ranks; return that of a call: both times the last one that is not larger."""
    found = None
    for _ in range(next(words)):
        size, of_size = next(words), None
        for _ in range(next(words)):
            least, rule = next(words), [next(words) for _ in range(width)]
            if least <= nbytes:
                of_size = rule
        if size <= ranks:
            found = of_size
    return found


def tuned(text, primitive, ranks, nbytes):
    words = numbers(text)
    for _ in range(next(words)):
        number, rule = next(words), rule_of(words, ranks, nbytes, 3)
        if number == ompi.COLLECTIVES[primitive]:
            return rule
    raise AssertionError(f"no rules for {primitive}")


def han(text, primitive, ranks, nbytes):
    words = numbers(text)
    for _ in range(next(words)):
        number, levels, level = next(words), next(words), next(words)
        assert (levels, level) == (1, ompi.GLOBAL)
        rule = rule_of(words, ranks, nbytes, 1)
        if number == ompi.COLLECTIVES[primitive]:
            return rule[0]
    raise AssertionError(f"no rules for {primitive}")


@given(st.data())
def test_each_size_gets_its_algorithm(data):
    names = ["linear", "chain/1024", "pipeline", ompi.FIXED]
    several = st.dictionaries(st.integers(2, 12), some_ranges(names).filter(bool), min_size=1, max_size=4)
    primitives = st.sampled_from(["bcast", "allreduce", "allgather", "alltoall"])
    rules = data.draw(st.dictionaries(primitives, several, min_size=1))
    primitive = data.draw(st.sampled_from(sorted(rules)))
    ranks, block = data.draw(st.integers(2, 14)), data.draw(st.integers(0, 3000))
    nbytes = block * ranks
    spread = data.draw(st.sets(st.integers(2, 14)))
    texts = ompi.OpenMpi(WORLD).files(rules, spread)
    expected = [one.algorithm for one in rules[primitive].get(ranks, []) if one.least <= nbytes <= one.most]
    name, _, segment = (expected or [ompi.FIXED])[0].partition("/")
    number, fanout, found_segment = tuned(texts["tuned.rules"], primitive, ranks, nbytes)
    assert number == ALGORITHMS.get(name, 0)
    if number:
        assert (fanout, found_segment) == (4 if primitive == "bcast" else 0, int(segment or 0))
    left = primitive in ompi.OF_HAN and any(one in spread for one in rules[primitive])
    if left:
        compared = block if primitive in ompi.PER_RANK else nbytes
        component = han(texts["han.rules"], primitive, ranks, compared)
        assert component == (ompi.TUNED if expected and ranks in spread else ompi.HAN)


def test_segments_are_shorter_than_the_vector():
    names = ompi.OpenMpi(WORLD).algorithms("bcast", 64 << 10)
    assert {"fixed", "linear", "chain", "chain/8192", "chain/32768"} <= set(names)
    assert "chain/131072" not in names and not any("ignore" in name or "linear/" in name for name in names)


def test_rules_of_one_host_do_not_concern_han():
    texts = ompi.OpenMpi(WORLD).files({"bcast": {4: [Range(8, 15, "linear")]}}, set())
    assert list(texts) == ["tuned.rules"]
    assert ompi.OpenMpi(WORLD).variables({"tuned.rules": "/a/tuned.rules"}) == {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "true",
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": "/a/tuned.rules",
    }

"""The JSON rules for MPICH select what was measured, and leave everything else to the library."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.runtime import native
from pycoll.tune.export.mpich import (
    ALGORITHMS,
    DEGREES,
    FLAT,
    PARAMETERS,
    Mpich,
    algorithm_tree,
    composition_tree,
    own_rules,
    with_rules,
)
from pycoll.tune.export.rules import DEFAULT, Range
from tests.mpi.native import SIZE, WORLD

pytestmark = pytest.mark.mpi

PLAIN = partial(algorithm_tree, parameters=lambda primitive, algorithm: {})
OWN = {
    f"collective={name}": {
        "comm_type=intra": {"comm_size<=7": {"algorithm=own": {}}, "comm_size=any": {"algorithm=own": {}}},
        "comm_type=inter": {"algorithm=between": {}},
    }
    for name in ("bcast", "allreduce", "reduce", "allgather", "alltoall", "reduce_scatter_block")
}


def holds(condition, call):
    """Whether a condition of MPICH holds for a call; see MPIR_Csel_search in csel.c."""
    for sign in ("<=", "<", "="):
        name, found, value = condition.partition(sign)
        if found:
            break
    if value == "any":
        return True
    if condition == "count<pow2":
        return call["count"] < 1 << (call["comm_size"].bit_length() - 1)
    return call[name] <= int(value) if sign == "<=" else call[name] == value


def selected(tree, call):
    """Follow the first condition that holds, as MPICH does, to an algorithm or a composition."""
    while True:
        name = next(name for name in tree if name.startswith(("algorithm=", "composition=")) or holds(name, call))
        if name.startswith(("algorithm=", "composition=")):
            return name.partition("=")[2]
        tree = tree[name]


def a_call(primitive, ranks, nbytes, **different):
    return {
        "collective": {"reduce_scatter": "reduce_scatter_block"}.get(primitive, primitive),
        "comm_type": "intra",
        "comm_size": ranks,
        "avg_msg_size": nbytes,
        "total_msg_size": nbytes,
        "count": 1000,
        "is_commutative": "yes",
        "is_op_built_in": "yes",
        "is_sendbuf_inplace": "no",
    } | different


@st.composite
def some_ranges(draw, algorithms):
    ends = sorted(draw(st.sets(st.integers(1, 5000), min_size=2, max_size=8)))
    return [
        Range(least, most - 1, draw(st.sampled_from(algorithms)))
        for least, most in pairwise(ends)
        if draw(st.booleans())
    ]


@given(st.data(), st.sampled_from(sorted(ALGORITHMS)))
def test_each_size_gets_its_algorithm(data, primitive):
    names = sorted(ALGORITHMS[primitive])
    of_ranks = data.draw(st.dictionaries(st.integers(2, 12), some_ranges(names), max_size=4))
    tree = with_rules(OWN, {primitive: of_ranks}, PLAIN)
    ranks, nbytes = data.draw(st.integers(2, 14)), data.draw(st.integers(0, 6000))
    expected = [one.algorithm for one in of_ranks.get(ranks, []) if one.least <= nbytes <= one.most]
    found = selected(tree, a_call(primitive, ranks, nbytes))
    assert found == "own" if not expected else found.endswith(f"_intra_{expected[0]}")


@pytest.mark.parametrize(
    ("primitive", "algorithm", "call"),
    [
        ("allreduce", "ring", {"is_commutative": "no"}),
        ("allreduce", "reduce_scatter_allgather", {"is_op_built_in": "no"}),
        ("allreduce", "reduce_scatter_allgather", {"count": 3}),
        ("alltoall", "pairwise", {"is_sendbuf_inplace": "yes"}),
        ("reduce_scatter", "recursive_halving", {"is_commutative": "no"}),
        ("bcast", "binomial", {"comm_size": 5}),
    ],
)
def test_what_an_algorithm_cannot_do_is_left_to_mpich(primitive, algorithm, call):
    tree = with_rules(OWN, {primitive: {4: [Range(1, 5000, algorithm)]}}, PLAIN)
    assert selected(tree, a_call(primitive, 4, 100)).endswith(algorithm)
    assert selected(tree, a_call(primitive, 4, 100, **call)) == "own"
    if primitive in FLAT:
        levels = with_rules(OWN, {primitive: {4: [Range(1, 5000, algorithm)]}}, composition_tree)
        assert selected(levels, a_call(primitive, 4, 100)) == FLAT[primitive][1]
        assert selected(levels, a_call(primitive, 4, 100, **call)) == "own"
    assert tree["collective=reduce"] == OWN["collective=reduce"], "other collectives are not touched"
    assert tree[next(name for name in tree)]["comm_type=inter"] == {"algorithm=between": {}}


def test_the_composition_of_an_algorithm_has_no_levels():
    tree = with_rules(OWN, {"bcast": {4: [Range(8, 63, "binomial")]}}, composition_tree)
    assert selected(tree, a_call("bcast", 4, 8)) == "MPIDI_Bcast_intra_composition_gamma"
    assert selected(tree, a_call("bcast", 4, 64)) == "own"


def test_the_own_rules_are_found_in_a_library():
    texts = [
        {"collective=bcast": {"algorithm=MPIDI_POSIX_mpi_bcast": {}}},
        {"collective=bcast": {"composition=MPIDI_x": {}}},
    ]
    texts.append({"collective=bcast": {"algorithm=MPIR_Bcast_intra_binomial": {}}})
    library = b"\x7fELF\0" + b"\0\0".join(json.dumps(one).encode() for one in texts) + b"\0more"
    assert own_rules(library) == (texts[2], texts[1])
    with pytest.raises(ValueError, match="this MPICH has no rules"):
        own_rules(b"\x7fELF\0")


def test_a_rule_has_the_parameters():
    def parameters(primitive, algorithm):
        assert (primitive, algorithm) == ("alltoall", "k_brucks:k=4")
        return {"k": 4}

    tree = algorithm_tree("alltoall", "k_brucks:k=4", OWN["collective=alltoall"], parameters)
    leaf = {"algorithm=MPIR_Alltoall_intra_k_brucks": {"k=4": {}}}
    assert tree == {"is_sendbuf_inplace=no": leaf, "is_sendbuf_inplace=yes": OWN["collective=alltoall"]}


@pytest.fixture
def library():
    if not native.library().startswith("MPICH"):
        pytest.skip("needs MPICH")
    return Mpich(WORLD)


@pytest.mark.skipif(SIZE == 1, reason="trees need two ranks")
def test_this_library_has_all_algorithms_and_parameters(library):
    text = Path(native.library_file()).read_bytes()
    for primitive, algorithms in ALGORITHMS.items():
        found = library.algorithms(primitive, 1 << 20)
        assert {name.partition(":")[0] for name in found} == set(algorithms)
        names = {parameter for each in PARAMETERS.get(primitive, {}).values() for parameter in each}
        # the compiler has no text for the comparison with a short name, which the jobs test
        assert all(f"{name}=\0".encode() in text for name in names if len(name) > 6)
        assert all(
            f"algorithm=MPIR_{native.function_name(primitive).capitalize()}_intra_{each}\0".encode() in text
            for each in algorithms
        )


@pytest.mark.skipif(SIZE == 1, reason="trees need two ranks")
def test_the_values_of_parameters(library):
    short, long = (library.algorithms("bcast", nbytes) for nbytes in (8192, 8193))
    degrees = [k for k in DEGREES if k // 2 < SIZE]
    assert [name for name in short if name.startswith("tree")] == [f"tree:k={k}" for k in degrees]
    assert [name for name in short if name.startswith("pipelined")] == []
    chunks = [f"pipelined_tree:k={k},chunk_size=8192" for k in [1, *degrees]]
    assert [name for name in long if name.startswith("pipelined")] == chunks
    assert "tree:k=2,chunk_size=0" in library.algorithms("allreduce", 8)


def test_the_parameters_are_those_of_the_measurement(library):
    library.select("bcast", "pipelined_tree:k=1,chunk_size=8192")
    library.select("bcast", DEFAULT)
    found = library.parameters("bcast", "pipelined_tree:k=4,chunk_size=32768")
    rest = {"tree_type": "kary", "is_non_blocking": 1, "recv_pre_posted": 0}
    assert found == {"k": 4, "chunk_size": 32768} | rest
    assert library.parameters("bcast", "binomial") == {}

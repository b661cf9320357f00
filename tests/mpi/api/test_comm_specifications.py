"""`pycoll.Comm` against mpi4py: all ways to specify a buffer, its counts and displacements, and in place.

The same call on the same memory must leave the same bytes everywhere.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

import pycoll
from pycoll.selection.choices import primitive_called
from tests.drawn import examples
from tests.mpi.native import MANY, RANK, SIZE

from .specifications import FORMS, INT, METHODS, MOVES, OURS, THEIRS, TYPED, TYPES, call_of, check, run, styles_of

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("method", METHODS)
def test_every_algorithm_in_every_form(method):
    name = primitive_called(method)
    algorithms = [None, *pycoll.algorithms(name)]
    style = "[buf, count]" if method.endswith("v") else "buf"
    check(method, partial(call_of, method, RANK, style, root=SIZE - 1), FORMS, algorithms)


@pytest.mark.parametrize("form", FORMS)
def test_barrier(form):
    for algorithm in [None, *pycoll.algorithms("barrier")]:
        run(OURS, "Barrier", form, [], algorithm=algorithm)


@pytest.mark.parametrize("method", METHODS)
def test_specifications(method):
    for i, style in enumerate(styles_of(method)):
        check(method, partial(call_of, method, RANK, style, root=i % SIZE), [FORMS[i % 3]])


@pytest.mark.parametrize("method", [method for method in METHODS if method != "Bcast"])
@pytest.mark.parametrize("marker", [MPI.IN_PLACE, None], ids=["IN_PLACE", "None"])
def test_in_place(method, marker):
    for i, style in enumerate(styles_of(method)):
        check(
            method,
            partial(call_of, method, RANK, style, root=i % SIZE, inside=True, marker=marker),
            [FORMS[i % 3]],
        )
    if method in MOVES:
        check(method, partial(call_of, method, RANK, TYPED, ("vector", "vector"), inside=True, marker=marker), FORMS)


@pytest.mark.parametrize("method", METHODS)
def test_in_place_by_every_algorithm(method):
    if method != "Bcast":
        name = primitive_called(method)
        style = "[buf, count]" if method.endswith("v") else "buf"
        check(
            method,
            partial(call_of, method, RANK, style, root=SIZE - 1, inside=True, marker=MPI.IN_PLACE),
            ["blocking"],
            pycoll.algorithms(name),
        )


@pytest.mark.parametrize("method", ["Reduce", "Allreduce", "Scan", "Exscan"])
def test_one_buffer_for_both_means_in_place(method):
    """The same buffer as both arguments means in place, as in later versions of mpi4py."""
    values, expected = np.arange(4) + RANK, np.arange(4) + RANK
    aside = method == "Reduce" and RANK
    getattr(THEIRS, method)(*([expected, None] if aside else [MPI.IN_PLACE, expected]))
    getattr(OURS, method)(values, values)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("method", METHODS)
def test_zero_counts(method):
    for i, style in enumerate(styles_of(method)):
        check(method, partial(call_of, method, RANK, style, counts=[0] * SIZE), [FORMS[i % 3]])


def test_no_buffer_for_no_elements():
    for nothing in ([None, 0, MPI.INT], [None, MPI.INT], [bytearray(), "i"]):
        OURS.Bcast(nothing)
        OURS.Allgather(nothing, nothing)


def test_zero_counts_between_some():
    for zeros in ([0] + [3] * (SIZE - 1), [0] * (SIZE - 1) + [3], [(r % 2) * 2 for r in range(SIZE)]):
        for method in ("Scatterv", "Gatherv", "Allgatherv", "Alltoallv", "Reduce_scatter"):
            check(method, partial(call_of, method, RANK, TYPED, counts=zeros, root=SIZE - 1))


@pytest.mark.parametrize("method", ["Scatterv", "Gatherv", "Allgatherv", "Alltoallv"])
@pytest.mark.parametrize(
    "written",
    [
        lambda b: [b, 2, INT],
        lambda b: [b, 2, 4, INT],
        lambda b: [b, (2, 3)],
        lambda b: [b, 2],
        lambda b: [b, np.full(SIZE, 2), INT],
        lambda b: [b, (tuple([2] * SIZE), np.arange(SIZE) * 3), "i"],
        lambda b: b[: 2 * SIZE],
        lambda b: [b[: 2 * SIZE], INT],
    ],
)
def test_counts_and_displacements_written_otherwise(method, written):
    """Counts may be one number for all ranks, an array, or omitted, which divides the buffer equally."""

    def make():
        blocks, block = np.arange(4 * SIZE, dtype=np.intc) + 100 * RANK, np.arange(2, dtype=np.intc) + 100 * RANK
        other = blocks.copy()
        send = written(blocks) if method in ("Scatterv", "Alltoallv") else block
        return [send, block if method == "Scatterv" else written(other)], [block, other]

    check(method, make)


def test_counts_shared_out_unevenly():
    def make():
        values, mine = np.arange(3 * SIZE - 1, dtype=np.intc), np.zeros(3 - (RANK == SIZE - 1), np.intc)
        return [values, mine], [mine]

    check("Scatterv", make)


def test_receive_counts_found_out():
    def make():
        send, recv = np.arange(SIZE * (SIZE + 1) // 2, dtype=np.intc) + RANK, np.zeros(RANK + 1, np.intc)
        return [send, recv], [recv]

    check("Reduce_scatter", make, FORMS)


@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Allreduce", "Alltoall"])
def test_arrays_in_fortran_order(method):
    def make():
        send = np.asfortranarray(np.arange(6 * SIZE).reshape(3, -1) + RANK)
        recv = np.zeros((2 * SIZE, 3 * SIZE if method == "Allgather" else 3), order="F", dtype=send.dtype)
        return [send, recv][: 1 if method == "Bcast" else 2], [send, recv]

    check(method, make)


@st.composite
def drawn_calls(draw):
    method = draw(st.sampled_from(METHODS))
    style = draw(st.sampled_from(styles_of(method)))
    names = ["int"]
    if method in MOVES and style.endswith("type]"):
        names = [name for name in TYPES if "count" in style or name != "indexed"]
    types = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    algorithm = draw(st.sampled_from([None, *pycoll.algorithms(primitive_called(method))]))
    counts = draw(st.lists(st.integers(0, 60), min_size=SIZE, max_size=SIZE))
    root, gap = draw(st.integers(0, SIZE - 1)), draw(st.integers(0, 5))
    inside = method != "Bcast" and draw(st.booleans())
    return method, style, types, root, counts, gap, inside, draw(st.sampled_from(FORMS)), algorithm


@examples(50 if MANY else 150)
@given(case=drawn_calls())
def test_drawn(together, case):
    together(check_drawn, *case)


def check_drawn(method, style, types, root, counts, gap, inside, form, algorithm):
    def make():
        return call_of(method, RANK, style, types, root, counts, gap, inside, MPI.IN_PLACE)

    check(method, make, [form], [algorithm])

"""Arguments of the methods of `pycoll.Comm`: the signatures of mpi4py, `algorithm`, and errors."""

import inspect

import numpy as np
import pytest
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

from .specifications import INT, METHODS, OURS, THEIRS

pytestmark = pytest.mark.mpi


FORM_NAMES = {"": lambda name: name, "I": lambda name: f"I{name.lower()}", "_init": lambda name: f"{name}_init"}


@pytest.mark.parametrize("form", FORM_NAMES.values(), ids=FORM_NAMES)
@pytest.mark.parametrize("method", [*METHODS, "Alltoallw", "Barrier"])
def test_signatures(method, form):
    ours, theirs = (inspect.signature(getattr(cls, form(method))).parameters for cls in (pycoll.Comm, MPI.Intracomm))
    assert [(p.name, p.default, p.kind) for p in ours.values()][: len(theirs)] == [
        (p.name, p.default, p.kind) for p in theirs.values()
    ]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(ours.values())[len(theirs) :])


MAKERS = [
    *("Split", "Split_type", "Create", "Create_group", "Dup", "Dup_with_info"),
    *("Clone", "Idup", "Idup_with_info", "Free"),
    *("Create_cart", "Create_graph", "Create_dist_graph", "Create_dist_graph_adjacent"),
]


@pytest.mark.parametrize("method", MAKERS)
def test_signatures_of_what_makes_communicators(method):
    ours, theirs = (inspect.signature(getattr(cls, method)).parameters for cls in (pycoll.Comm, MPI.Intracomm))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_arguments_by_name():
    values, result, expected = np.arange(4) + RANK, np.zeros(4, int), np.zeros(4, int)
    THEIRS.Reduce(sendbuf=values, recvbuf=expected, op=MPI.MAX, root=SIZE - 1)
    OURS.Reduce(sendbuf=values, recvbuf=result, op=MPI.MAX, root=SIZE - 1)
    np.testing.assert_array_equal(result, expected)
    OURS.Ireduce(recvbuf=result, sendbuf=values, root=SIZE - 1, op=MPI.MAX).Wait()
    np.testing.assert_array_equal(result, expected)
    for more in ({"info": MPI.INFO_NULL}, {}):
        request = OURS.Reduce_init(values, recvbuf=result, op=MPI.MAX, root=SIZE - 1, **more)
        request.Start()
        request.Wait()
        request.Free()
    request = OURS.Allreduce_init(values, result, MPI.SUM, MPI.INFO_NULL)
    request.Free()
    OURS.Bcast(buf=result, root=SIZE - 1)
    np.testing.assert_array_equal(result, np.arange(4) + SIZE - 1)


def logged_algorithm(caplog, comm, count, **options):
    caplog.clear()
    with caplog.at_level("DEBUG", "pycoll.algorithms"):
        comm.Allreduce(np.ones(count), np.empty(count), **options)
    assert len(caplog.records) <= 1
    return [word for word in caplog.text.replace(",", " ").split() if word in pycoll.algorithms("allreduce")]


def test_the_choice_takes_effect(caplog):
    comm = OURS.Dup()
    by_rules = pycoll.explain("allreduce", nbytes=8 * 1301, dtype="f8", comm=comm).algorithm
    assert logged_algorithm(caplog, comm, 1301) == [by_rules]
    comm.algorithm["Allreduce"] = "ring"
    assert logged_algorithm(caplog, comm, 1301) == ["ring"]
    assert logged_algorithm(caplog, comm, 1301, algorithm="naive") == ["naive"]
    assert logged_algorithm(caplog, comm, 1302) == ["ring"]
    del comm.algorithm["allreduce"]
    assert logged_algorithm(caplog, comm, 1303) == [by_rules]
    comm.Free()


def test_a_choice_changed_between_two_equal_calls_takes_effect(caplog):
    comm, values, result = OURS.Dup(), np.ones(1401), np.empty(1401)
    for name in ("ring", "tree", "naive", "double_tree"):
        comm.algorithm["Allreduce"] = name
        caplog.clear()
        with caplog.at_level("DEBUG", "pycoll.algorithms"):
            for _ in range(3):
                comm.Allreduce(values, result)
        assert [record.args[4] for record in caplog.records] == [name]
    comm.Free()


def test_a_root_logger_that_shows_info_shows_no_choices(caplog):
    """Each length is a kind of call: a program that sends thousands of lengths would log thousands of lines."""
    gaps, moved = MPI.INT.Create_vector(2, 1, 2).Commit(), np.ones(3, "i")
    add = MPI.Op.Create(lambda left, right, _: None)
    with caplog.at_level("INFO"):
        OURS.Allreduce(np.ones(1501), np.empty(1501))
        OURS.Allreduce([moved, 1, gaps], [moved.copy(), 1, gaps], add)  # left to MPI
    assert not caplog.records
    add.Free()
    gaps.Free()


def test_wrong_choices():
    comm = OURS.Dup()
    with pytest.raises(ValueError, match=r"'fastest' is not one of .*naive, tree, ring"):
        comm.algorithm["Allreduce"] = "fastest"
    with pytest.raises(KeyError, match=r"'Allreduction' is not one of: .*bcast"):
        comm.algorithm["Allreduction"] = "ring"
    with pytest.raises(ValueError, match="'fastest' is not one of"):
        comm.Allreduce(np.ones(2), np.empty(2), algorithm="fastest")
    assert comm.algorithm == {}
    comm.algorithm["Reduce_scatter_block"] = "pairwise"
    assert comm.algorithm["reduce_scatter"] == "pairwise"
    comm.Free()


INTS, FLOATS = np.zeros(2 * SIZE, np.intc), np.zeros(2 * SIZE)
FROZEN = np.zeros(2, np.intc)
FROZEN.flags.writeable = False
WRONG = [
    ("Bcast", lambda: []),
    ("Bcast", lambda: [3.0]),
    ("Bcast", lambda: [[INTS]]),
    ("Bcast", lambda: [[INTS, 1, 0, INT, 0]]),
    ("Bcast", lambda: [[INTS, "no such type"]]),
    ("Bcast", lambda: [[INTS, 2, "no such type"]]),
    ("Bcast", lambda: [[INTS, 2, 7]]),
    ("Bcast", lambda: [[INTS, -1, INT]]),
    ("Bcast", lambda: [[INTS, (1, -1), INT]]),
    ("Bcast", lambda: [[INTS, (1, 10**6), INT]]),
    ("Bcast", lambda: [[INTS, 1.5, INT]]),
    ("Bcast", lambda: [[np.zeros(3, "u1"), INT]]),
    ("Bcast", lambda: [[None, 3, INT]]),
    ("Bcast", lambda: [INTS, "zero"]),
    ("Bcast", lambda: [INTS, None]),
    ("Bcast", lambda: [INTS, 0, 0]),
    ("Allreduce", lambda: [INTS]),
    ("Allreduce", lambda: [INTS, None]),
    ("Allreduce", lambda: [INTS, MPI.IN_PLACE]),
    ("Allreduce", lambda: [INTS, np.zeros(1, np.intc)]),
    ("Allreduce", lambda: [INTS, FLOATS]),
    ("Allreduce", lambda: [INTS, [FLOATS, 2 * SIZE, MPI.DOUBLE]]),
    ("Allreduce", lambda: [[INTS, 1, INT], [INTS.copy(), 2, INT]]),
    ("Allreduce", lambda: [INTS, INTS.copy(), None]),
    ("Allreduce", lambda: [INTS, INTS.copy(), max]),
    ("Scan", lambda: [INTS, INTS[:1].copy()]),
    ("Exscan", lambda: [INTS, FLOATS]),
    ("Allgather", lambda: [INTS, None]),
    ("Allgather", lambda: [3, INTS]),
    ("Alltoall", lambda: [INTS, 5]),
    ("Allgatherv", lambda: [INTS[:1], [INTS.copy(), [1] * (SIZE + 1), INT]]),
    ("Allgatherv", lambda: [INTS[:1], [INTS.copy(), ([1] * SIZE, [0] * (SIZE + 1)), INT]]),
    ("Allgatherv", lambda: [INTS[:1], [INTS.copy(), ["a"] * SIZE, INT]]),
    ("Alltoallv", lambda: [[INTS], INTS]),
    ("Alltoallw", lambda: [[INTS, [1] * SIZE, [0] * SIZE, [INT] * (SIZE + 1)], [INTS.copy(), [INT] * SIZE]]),
    ("Alltoallw", lambda: [[INTS], [INTS.copy(), [INT] * SIZE]]),
    ("Reduce_scatter", lambda: [INTS, INTS[:2].copy(), [3] * SIZE]),
    ("Reduce_scatter", lambda: [INTS, INTS[:2].copy(), [2] * (SIZE + 1)]),
    ("Reduce_scatter", lambda: [INTS, FLOATS[:2].copy(), [2] * SIZE]),
    ("Reduce_scatter", lambda: [MPI.IN_PLACE, INTS]),
    ("Reduce_scatter", lambda: [MPI.IN_PLACE, INTS, [3] * SIZE]),
    ("Reduce_scatter_block", lambda: [INTS, INTS[:1].copy()]),
    ("Reduce_scatter_block", lambda: [INTS, FLOATS[:2].copy()]),
    *([("Alltoall", lambda: [INTS[1:], INTS[1:].copy()])] if SIZE > 1 else []),
    *([("Scatter", lambda: [INTS, None])] if RANK else [("Gather", lambda: [INTS, None])]),
]


@pytest.mark.parametrize(("method", "arguments"), WRONG, ids=[f"{i}-{wrong[0]}" for i, wrong in enumerate(WRONG)])
def test_wrong_arguments(method, arguments):
    with pytest.raises((TypeError, ValueError, KeyError)) as theirs:
        getattr(THEIRS, method)(*arguments())
    for form in FORM_NAMES.values():
        with pytest.raises(theirs.type):
            getattr(OURS, form(method))(*arguments())


@pytest.mark.parametrize("options", [{"root": 0, "tag": 3}, {"buf": INTS}, {"info": 3}], ids=str)
def test_arguments_of_no_meaning(options):
    for name in ("Bcast", "Ibcast"):
        with pytest.raises(TypeError):
            getattr(OURS, name)(INTS, **options)


@pytest.mark.parametrize("method", ["Allreduce", "Reduce_scatter"])
@pytest.mark.parametrize("form", FORM_NAMES.values(), ids=FORM_NAMES)
def test_a_misspelt_keyword(form, method):
    """A missing argument must not default to None, which means MPI.IN_PLACE."""
    values, result = np.ones(2 * SIZE), np.zeros(2 * SIZE)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sendbuff'"):
        getattr(OURS, form(method))(sendbuff=values, recvbuf=result)
    assert not result.any()


def test_none_is_in_place_for_methods_only():
    values = np.ones(4)
    for turn in range(3):
        OURS.Allreduce(None, values)
        np.testing.assert_array_equal(values, np.full(4, SIZE ** (turn + 1)))
        with pytest.raises(TypeError, match="sendbuf"):
            pycoll.allreduce(None, values)


def test_wrong_roots_and_wrong_memory():
    for root in (-1, SIZE, MPI.PROC_NULL):
        with pytest.raises(ValueError, match="is not a rank of the communicator"):
            OURS.Bcast(INTS, root)
    for wrong in (FROZEN, np.zeros(4, np.intc)[::2]):
        with pytest.raises((ValueError, BufferError)):
            OURS.Allreduce(FROZEN.copy(), wrong)


def test_after_all_this_the_world_is_in_order():
    assert OURS.algorithm == {} and WORLD.allreduce(1) == SIZE

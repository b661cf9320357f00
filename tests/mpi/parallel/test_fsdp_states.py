"""States of FullyShardedDataParallel with any number of ranks and any units; errors."""

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from pycoll.parallel import SGD, FullyShardedDataParallel, Piece
from tests.drawn import examples
from tests.mpi.native import RANK, SIZE, WORLD

from .test_fsdp import (
    NAMES,
    SHAPES,
    UNITS,
    announce,
    assembled,
    assert_close,
    assert_equal,
    backward_pass,
    model,
    share,
    train,
    trained_alone,
)

pytestmark = pytest.mark.mpi
several = pytest.mark.skipif(SIZE == 1, reason="there is nobody to differ from")


def zeros():
    return {name: np.zeros(shape) for name, shape in SHAPES.items()}


@st.composite
def models(draw):
    """Draw shapes, a division into units, and options."""
    shapes = draw(st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=6))
    names = [f"p{i}" for i in range(len(shapes))]
    options = {option: draw(st.booleans()) for option in ("prefetch", "reshard_after_forward", "offload")}
    return dict(zip(names, shapes)), draw(cuts(names)), options


@st.composite
def cuts(draw, items):
    """Divide the items into one or several runs."""
    places = sorted(draw(st.sets(st.integers(1, len(items)))) - {len(items)})
    return [items[start:stop] for start, stop in itertools.pairwise([0, *places, len(items)])]


@examples(15)
@given(case=models())
def test_drawn_models(together, case):
    together(check_drawn, *case)


def check_drawn(shapes, units, options):
    whole = {name: np.asarray(np.random.default_rng(3).normal(size=shape)) for name, shape in shapes.items()}
    with FullyShardedDataParallel(whole, units, **options) as fsdp:
        assert_equal(assembled(units, fsdp.shards, shapes), whole)
        for unit, names in enumerate(units):
            with fsdp.forward(unit) as parameters:
                assert_equal(parameters, {name: whole[name] for name in names})
        announce(fsdp, {name: np.asarray(array * (RANK + 1)) for name, array in whole.items()})
        expected = {name: np.asarray((SIZE + 1) / 2 * array) for name, array in whole.items()}
        assert_close(assembled(units, fsdp.synchronize(), shapes), expected, 1e-12)
        for root in (None, 0, SIZE - 1):
            assert_equal(fsdp.state_dict(root=root), whole if root in (None, RANK) else {})
        check_pieces(WORLD.allgather(fsdp.state_dict(full=False)), whole)


def check_pieces(states, whole):
    for name, array in whole.items():
        pieces = [state[name] for state in states if name in state]
        assert {piece.shape for piece in pieces} <= {array.shape}
        found = np.full(array.size, np.nan)
        for piece in pieces:
            assert len(piece.values) and np.isnan(found[piece.start : piece.stop]).all()
            found[piece.start : piece.stop] = piece.values
        np.testing.assert_array_equal(found, array.reshape(-1))


def test_states_are_copies():
    with FullyShardedDataParallel(model()) as fsdp:
        for array in fsdp.state_dict().values():
            array[...] = 0
        for piece in fsdp.state_dict(full=False).values():
            piece.values[...] = 0
        assert_equal(fsdp.state_dict(), model())


def pieces_by_hand(ranks, units):
    """Return the states of this number of ranks; each has an equal part of every unit, except the last ranks."""
    states = [{} for _ in range(ranks)]
    for names in units:
        flat = np.concatenate([model()[name].reshape(-1) for name in names])
        length, first = -(-len(flat) // ranks), 0
        for name in names:
            for rank, state in enumerate(states):
                start, stop = max(first, rank * length), min(first + model()[name].size, (rank + 1) * length)
                if start < stop:
                    state[name] = Piece(start - first, flat[start:stop], SHAPES[name])
            first += model()[name].size
    return states


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("units", ["one", "each", "uneven"])
def test_loads_the_states_of_another_number_of_ranks_with_other_units(ranks, units):
    with FullyShardedDataParallel(zeros(), prefetch=False) as fsdp:
        fsdp.load_state_dict(pieces_by_hand(ranks, UNITS[units]))
        assert_equal(fsdp.state_dict(), model())
        with fsdp.forward(0) as parameters:
            assert_equal(parameters, {name: model()[name] for name in NAMES[:2]})


def test_pieces_come_in_any_order():
    with FullyShardedDataParallel(zeros()) as fsdp:
        fsdp.load_state_dict(pieces_by_hand(5, UNITS["one"])[::-1])
        assert_equal(fsdp.state_dict(), model())


@pytest.mark.parametrize("ranks", sorted({1, max(1, SIZE - 1)}))
def test_a_state_goes_from_a_few_ranks_to_all_and_back(ranks):
    few = WORLD.Split(0 if ranks > RANK else MPI.UNDEFINED)
    states = None
    if few:
        with FullyShardedDataParallel(model(), UNITS["uneven"], comm=few) as fsdp:
            announce(fsdp, {name: np.ones(shape) for name, shape in SHAPES.items()})
            SGD(fsdp.shards, lr=0.5).step(fsdp.synchronize())
            states = few.allgather(fsdp.state_dict(full=False))
    states = WORLD.bcast(states)
    assert len(states) == ranks
    trained = {name: np.asarray(array - 0.5) for name, array in model().items()}
    with FullyShardedDataParallel(zeros()) as fsdp:
        fsdp.load_state_dict(states)
        assert_equal(assembled(fsdp.units, fsdp.shards), trained)
        states = WORLD.allgather(fsdp.state_dict(full=False))
    if few:
        with FullyShardedDataParallel(zeros(), UNITS["each"], comm=few) as fsdp:
            fsdp.load_state_dict(states)
            assert_equal(assembled(fsdp.units, fsdp.shards, comm=few), trained)
        few.Free()


def test_what_is_gathered_already_is_gathered_anew_after_loading():
    with FullyShardedDataParallel(zeros(), prefetch=False, reshard_after_forward=False) as fsdp:
        for state in (model(), zeros()):
            with fsdp.forward(1) as parameters:
                assert not np.array_equal(parameters["middle.weight"], state["middle.weight"])
            fsdp.load_state_dict(state)
            with fsdp.forward(1) as parameters:
                np.testing.assert_array_equal(parameters["middle.weight"], state["middle.weight"])


LENGTH = 4 * SIZE


def pieces_of_a(starts):
    return [{"a": Piece(start, np.zeros(2), (LENGTH,))} for start in starts]


@pytest.mark.parametrize(
    "state, pattern",
    [
        ({}, "'a'.* found"),
        ({"a": np.zeros(LENGTH + 1)}, rf"'a' has shape \({LENGTH},\).*shape \({LENGTH + 1},\)"),
        ({"a": np.zeros((LENGTH, 1))}, rf"'a' has shape \({LENGTH},\).*shape \({LENGTH}, 1\)"),
        ([{"a": Piece(4 * rank, np.zeros(3), (LENGTH,))} for rank in range(SIZE)], "'a'.* found"),
        (
            [{"a": Piece(4 * rank + n % 2, np.zeros(2), (LENGTH,))} for rank in range(SIZE) for n in range(2)],
            "'a'.* found",
        ),
    ],
    ids=["missing", "longer", "other shape", "holes", "overlaps and holes"],
)
def test_states_that_do_not_fit(state, pattern):
    with FullyShardedDataParallel({"a": np.zeros(LENGTH)}) as fsdp, pytest.raises(ValueError, match=pattern):
        fsdp.load_state_dict(state)


@pytest.mark.parametrize(
    "units, pattern",
    [
        ([["a", "b"], ["c", "d"]], "'d' is not a parameter"),
        ([["a", "b"], ["b"], ["c"]], "'b' is listed more than once"),
        ([["a", "a", "b"], ["c"]], "'a' is listed more than once"),
        ([["b"]], "no unit lists 'a', 'c'"),
        ([["a"], ["b", "c"]], "'b', 'c' do not have one dtype"),
        ([["a", "b"], [], ["c"]], "units"),
    ],
)
def test_wrong_units(units, pattern):
    with pytest.raises(ValueError, match=pattern):
        FullyShardedDataParallel({"a": np.zeros(2), "b": np.zeros(2), "c": np.zeros(2, "f4")}, units)


def test_wrong_parameters():
    for error, parameters in (
        (TypeError, [np.zeros(2)]),
        (TypeError, {"a": [1.0, 2.0]}),
        (TypeError, {1: np.zeros(2)}),
        (ValueError, {"a": np.zeros((2, 3)).T}),
    ):
        with pytest.raises(error, match="parameters"):
            FullyShardedDataParallel(parameters)
    with pytest.raises(ValueError, match=r"'a\.b', 'a\.c' do not have one dtype"):
        FullyShardedDataParallel({"a.b": np.zeros(2), "a.c": np.zeros(2, "f4")})


@pytest.mark.parametrize("name", ["param_dtype", "reduce_dtype"])
def test_wrong_dtypes(name):
    for parameter, dtype, why in (
        (np.zeros(2), "int8", "has dtype int8, which cannot be averaged"),
        (np.zeros(2), "nonsense", "data type 'nonsense' not understood"),
        (np.zeros(2, complex), "f4", "has dtype complex128, whose imaginary parts would be lost in float32"),
    ):
        with pytest.raises(TypeError, match=f"^({name}|parameters).*{why}"):
            FullyShardedDataParallel({"a": parameter}, **{name: dtype})


def test_imaginary_parts_are_not_lost_in_bfloat16():
    """NumPy casts complex numbers to dtypes of ml_dtypes without an error."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    with FullyShardedDataParallel({"a": np.zeros(2)}, reduce_dtype="bfloat16") as fsdp, fsdp.backward(0):
        with pytest.raises(TypeError, match="the gradient of 'a' has dtype complex128"):
            fsdp.ready("a", np.full(2, 1j))
        fsdp.ready("a", np.zeros(2))
    with (
        FullyShardedDataParallel({"a": np.zeros(2 * SIZE, bfloat16)}) as fsdp,
        pytest.raises(TypeError, match="'a': the array to load has dtype complex128"),
    ):
        fsdp.load_state_dict({"a": np.full(2 * SIZE, 1j)})


COMMON = {"a": np.zeros(3), "b": np.zeros((2, 2), "f4")}


@several
@pytest.mark.parametrize(
    "other, where",
    [
        (COMMON | {"a": np.zeros(4)}, r"0 .*rank 0 has 'a': float64 \(3,\), rank {} has 'a': float64 \(4,\)"),
        (COMMON | {"b": np.zeros((2, 2))}, r"1 .*rank 0 has 'b': float32 \(2, 2\), rank {} has 'b': float64"),
        ({"a": COMMON["a"], "c": COMMON["b"]}, "1 .*rank 0 has 'b'.*, rank {} has 'c'"),
        (dict(reversed(COMMON.items())), "0 .*rank 0 has 'a'.*, rank {} has 'b'"),
        ({"a": COMMON["a"]}, "1 .*rank 0 has 'b'.*, rank {} has nothing"),
        (COMMON | {"c": np.zeros(1)}, "2 .*rank 0 has nothing, rank {} has 'c'"),
    ],
    ids=["shape", "dtype", "name", "order", "fewer", "more"],
)
def test_parameters_that_differ_between_ranks(other, where):
    for odd in {1, SIZE - 1}:
        with pytest.raises(ValueError, match="parameter " + where.format(odd)):
            FullyShardedDataParallel(other if odd == RANK else COMMON)


@several
def test_rank_0_alone_has_no_parameters():
    with pytest.raises(ValueError, match=r"parameter 0 .*rank 0 has nothing, rank 1 has 'a'"):
        FullyShardedDataParallel({} if RANK == 0 else COMMON)


@several
@pytest.mark.parametrize("units", [None, [["a.b", "a.c"]]])
def test_parameters_that_make_wrong_units_on_one_rank(units):
    parameters = {"a.b": np.zeros(2), "a.c": np.zeros(2)}
    for other in (parameters | {"a.c": np.zeros(2, "f4")}, {"a.b": np.zeros(2), "a.d": np.zeros(2)}):
        with pytest.raises(ValueError, match=f"parameter 1 .*rank 0 has 'a.c'.*rank {SIZE - 1} has 'a.[cd]'"):
            FullyShardedDataParallel(other if RANK == SIZE - 1 else parameters, units)


@several
@pytest.mark.parametrize(
    "units, other",
    [([["a"], ["b"]], [["b"], ["a"]]), ([["a"], ["b"]], [["a", "b"]]), (None, [["a"]]), ([["b"], ["a"]], None)],
    ids=["order", "together", "left out", "by default"],
)
def test_units_that_differ_between_ranks(units, other):
    with pytest.raises(ValueError, match="unit"):
        FullyShardedDataParallel({"a": np.zeros(SIZE), "b": np.zeros(SIZE)}, other if RANK == SIZE - 1 else units)


def test_gradients_that_are_refused():
    with FullyShardedDataParallel(model(), prefetch=False) as fsdp:
        bias = np.zeros(6)
        outside = r"'middle\.bias' is a parameter of unit 1: call ready within the backward block of this unit"
        with pytest.raises(ValueError, match=outside):
            fsdp.ready("middle.bias", bias)
        with fsdp.forward(1), pytest.raises(ValueError, match=outside):
            fsdp.ready("middle.bias", bias)
        with fsdp.backward(1):
            fsdp.ready("middle.bias", bias)
            for name, why in {
                "middle.bias": "already has a gradient in this backward block",
                "out.bias": "is a parameter of unit 3, but this is the backward block of unit 1",
                "other": "is not a parameter",
            }.items():
                with pytest.raises(ValueError, match=f"name='{name}' {why}$"):
                    fsdp.ready(name, bias)
            with pytest.raises(ValueError, match=r"'middle.weight' has shape \(6, 7\), but its parameter has \(7, 6\)"):
                fsdp.ready("middle.weight", np.zeros((6, 7)))
            with pytest.raises(TypeError):
                fsdp.ready("middle.weight", np.zeros((7, 6), complex))
            fsdp.ready("middle.weight", np.zeros((7, 6)))
        with pytest.raises(ValueError, match=outside):
            fsdp.ready("middle.bias", bias)
        announce(fsdp, zeros())
        fsdp.synchronize()


def test_units_that_are_not_there():
    with FullyShardedDataParallel(model()) as fsdp:
        for unit in (-1, 4):
            for block in (fsdp.forward, fsdp.backward):
                with pytest.raises(ValueError, match=f"unit={unit} is not in 0 <= unit < 4"), block(unit):
                    pass


def goes_on_as_if_nothing_was(fsdp):
    train(fsdp, SGD(fsdp.shards, lr=0.05, momentum=0.9), 3)
    assert_close(fsdp.state_dict(), trained_alone("sgd", 3))


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_gradient_that_is_missing(prefetch):
    with FullyShardedDataParallel(model(), [*UNITS["each"][:5], NAMES[5:]], prefetch=prefetch) as fsdp:
        with (
            pytest.raises(RuntimeError, match=r"^backward\(5\): ready was not called for 'out\.weight'$"),
            fsdp.backward(5),
        ):
            fsdp.ready("out.bias", np.zeros(3))
        with pytest.raises(ValueError, match=r"'out\.weight' is a parameter of unit 5: call ready within"):
            fsdp.ready("out.weight", np.zeros((6, 3)))
        goes_on_as_if_nothing_was(fsdp)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("block", ["forward", "backward"])
def test_an_error_inside_a_block(block, prefetch):
    with FullyShardedDataParallel(model(), UNITS["each"], prefetch=prefetch) as fsdp:
        with pytest.raises(ZeroDivisionError), getattr(fsdp, block)(3):
            raise ZeroDivisionError
        goes_on_as_if_nothing_was(fsdp)


def test_units_inside_one_another_need_memory():
    with FullyShardedDataParallel(model(), UNITS["each"], prefetch=False) as fsdp:
        with fsdp.forward(1), pytest.raises(RuntimeError, match="unit 0 uses the buffer of unit 1"), fsdp.forward(0):
            pass
        goes_on_as_if_nothing_was(fsdp)


def test_units_inside_one_another_with_prefetch():
    """The unit after the inner one is not gathered in advance into the buffer of the outer one."""
    with FullyShardedDataParallel(model(), UNITS["each"]) as fsdp:
        with fsdp.forward(0) as outer, fsdp.forward(1) as inner:
            assert_close(outer | inner, {name: model()[name] for name in NAMES[:2]})
        goes_on_as_if_nothing_was(fsdp)


@pytest.mark.parametrize("announced", [False, True])
def test_a_backward_block_inside_another_loses_no_gradient(announced):
    """The inner block raises an error, whether or not the outer one has announced its gradient."""
    parameters = {name: np.zeros(SIZE) for name in "abc"}
    with FullyShardedDataParallel(parameters, reshard_after_forward=False) as fsdp:
        blocks = contextlib.ExitStack()
        with pytest.raises(RuntimeError), blocks:
            blocks.enter_context(fsdp.backward(2))
            if announced:
                fsdp.ready("c", np.ones(SIZE))
            with fsdp.backward(0):
                fsdp.ready("a", np.zeros(SIZE))


def test_a_unit_without_a_backward_pass():
    with FullyShardedDataParallel(model()) as fsdp:
        announce(fsdp, zeros())
        fsdp.synchronize()
        for unit in (3, 2, 0):
            with fsdp.backward(unit) as parameters:
                for name in parameters:
                    fsdp.ready(name, model()[name])
        with pytest.raises(RuntimeError, match=r"no backward pass .* middle\.weight, middle\.bias$"):
            fsdp.synchronize()
        with fsdp.backward(1):
            for name in NAMES[2:4]:
                fsdp.ready(name, model()[name])
        assert_close(assembled(fsdp.units, fsdp.synchronize()), model())


@pytest.mark.parametrize("block", ["forward", "backward"])
def test_freed_while_something_is_under_way(block):
    with FullyShardedDataParallel(model()) as fsdp, getattr(fsdp, block)(1) as parameters:
        if block == "backward":
            for name, array in parameters.items():
                fsdp.ready(name, array)


def test_freed_twice_as_often_as_communicators_last():
    for _ in range(20):
        with FullyShardedDataParallel(model()) as fsdp:
            backward_pass(fsdp, *share(0))
            fsdp.synchronize()
        with pytest.raises(MPI.Exception):
            fsdp.comm.Get_size()

"""Arrays laid out in one vector, their pieces, and copies between host and device."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mpi4py")

from pycoll.parallel import flat
from pycoll.parallel.flat import FlatLayout, Piece
from tests.gpu.standin import installed
from tests.gpu.standin import ndarray as Device


@pytest.fixture(autouse=True, scope="module")
def stand_in():
    with installed():
        yield


def host(array):
    return array.get() if isinstance(array, Device) else array


PLACES = {"host": np.array, "device": lambda *arguments: Device.on(np.array(*arguments))}
shapes = st.lists(st.sampled_from([(), (0,), (1,), (5,), (2, 3), (3, 0, 2), (1, 4, 2)]), max_size=6)


def elements(shape):
    return int(np.prod(shape, dtype=int))


def named(shapes, dtype=float):
    """Return arrays of the given shapes with consecutively numbered elements."""
    ends = np.cumsum([elements(shape) for shape in shapes], dtype=int)
    return {
        f"array{place}": np.arange(end - elements(shape), end).astype(dtype).reshape(shape)
        for place, (shape, end) in enumerate(zip(shapes, ends))
    }


def test_the_device_refuses_the_host():
    one, other = Device.on(np.ones(3)), np.ones(3)
    for mix in (
        lambda: one + other,
        lambda: other + one,
        lambda: np.copyto(one, other),
        lambda: np.copyto(other, one),
        lambda: np.asarray(one),
        lambda: one.__setitem__(slice(None), other),
        lambda: other.__setitem__(slice(None), one),
    ):
        with pytest.raises(TypeError):
            mix()


@given(shapes, st.integers(0, 3))
def test_views_lie_side_by_side(shapes, padding):
    arrays = named(shapes)
    layout = FlatLayout(arrays)
    assert layout.size == sum(array.size for array in arrays.values())
    assert layout.shapes == {name: array.shape for name, array in arrays.items()}
    vector = np.full(layout.size + padding, -1.0)
    views = layout.views(vector)
    assert list(views) == list(arrays)
    for name, view in views.items():
        assert view.shape == arrays[name].shape
        view[...] = arrays[name]
    assert vector.tolist() == [*range(layout.size), *[-1] * padding]


def test_views_of_a_device_stay_there():
    vector = Device.on(np.zeros(7))
    views = FlatLayout(named([(2, 2), (3,)])).views(vector)
    views["array0"].set(np.array([[1.0, 2], [3, 4]]))
    views["array1"] += 5
    assert vector.get().tolist() == [1, 2, 3, 4, 5, 5, 5]


@given(shapes, st.integers(1, 7))
def test_shards_are_made_of_pieces(shapes, ranks):
    arrays = named(shapes)
    layout = FlatLayout(arrays)
    length = -(-layout.size // ranks)
    found = {name: [] for name in arrays}
    for rank in range(ranks):
        shard = np.full(length, -1.0)
        for name, piece in layout.pieces(shard, rank * length):
            assert piece.shape == arrays[name].shape and len(piece.values) > 0
            assert piece.stop == piece.start + len(piece.values)
            piece.values[...] = arrays[name].reshape(-1)[piece.start : piece.stop]
            found[name] += range(piece.start, piece.stop)
        numbers = np.arange(rank * length, (rank + 1) * length)
        assert shard.tolist() == np.where(numbers < layout.size, numbers, -1).tolist()
    assert found == {name: [*range(array.size)] for name, array in arrays.items()}


def test_whole_arrays_are_pieces():
    arrays = named([(2, 3), (), (0,)])
    pieces = dict(flat.whole_pieces(arrays))
    assert {name: (piece.start, piece.stop, piece.shape) for name, piece in pieces.items()} == {
        "array0": (0, 6, (2, 3)),
        "array1": (0, 1, ()),
        "array2": (0, 0, (0,)),
    }
    pieces["array0"].values[4] = -1
    assert arrays["array0"][1, 1] == -1


def cut(values, cuts, shape):
    """Cut `values` at the places in `cuts`, and return copies of the pieces."""
    ends = sorted({0, *cuts, len(values)})
    return [Piece(start, values[start:stop].copy(), shape) for start, stop in pairwise(ends)]


places = st.sets(st.integers(0, 24))


@given(places, places, st.randoms(use_true_random=False))
def test_pieces_are_filled_from_pieces_cut_elsewhere(cuts, other_cuts, random):
    values = np.arange(24.0)
    sources = cut(values, cuts, (4, 6))
    random.shuffle(sources)
    for piece in cut(np.full(24, -1.0), other_cuts, (4, 6)):
        flat.fill(piece, "w", sources)
        assert piece.values.tolist() == [*range(piece.start, piece.stop)]


interval = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted)


@given(st.lists(interval, max_size=5), interval)
def test_what_pieces_do_not_cover_is_not_filled(intervals, wanted):
    values = np.arange(8.0)
    sources = [Piece(start, values[start:stop], (8,)) for start, stop in intervals]
    piece = Piece(wanted[0], np.full(wanted[1] - wanted[0], -1.0), (8,))
    covered = {number for start, stop in intervals for number in range(start, stop)}
    if missing := set(range(*wanted)) - covered:
        found = len(piece.values) - len(missing)
        with pytest.raises(ValueError, match=f"'w': only {found} of {len(piece.values)} elements were found"):
            flat.fill(piece, "w", sources)
    else:
        flat.fill(piece, "w", sources)
        assert piece.values.tolist() == [*range(*wanted)]


def test_pieces_of_another_shape_do_not_fit():
    piece = Piece(0, np.zeros(6), (2, 3))
    with pytest.raises(ValueError, match=r"'w' has shape \(2, 3\), but the array to load has shape \(3, 2\)"):
        flat.fill(piece, "w", [Piece(0, np.ones(6), (3, 2))])
    assert not piece.values.any()


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("source", PLACES)
def test_pieces_are_filled_between_host_and_device(to, source):
    piece = Piece(1, PLACES[to]([0.0] * 4, np.float32), (6,))
    values = PLACES[source]([*range(6)], float)
    flat.fill(piece, "w", [Piece(0, values[:3], (6,)), Piece(3, values[3:], (6,))])
    assert host(piece.values).tolist() == [1, 2, 3, 4] and piece.values.dtype == np.float32


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize(
    "dtypes",
    [("f8", "f8"), ("f8", "f4"), ("f4", "f8"), ("f2", "f4"), ("f8", "i4"), ("bfloat16", "f4"), ("f4", "bfloat16")],
    ids="<-".join,
)
def test_copies_convert(to, source, dtypes):
    if "bfloat16" in dtypes:
        pytest.importorskip("ml_dtypes")
    target, given = map(flat.named_dtype, dtypes)
    values = np.array([1, 100.3, -7.6, 3]).astype(given)
    buffer = PLACES[to]([9] * 6, target)
    flat.copy(buffer[1:5], PLACES[source](values))
    assert host(buffer).tolist() == [9, *values.astype(target).tolist(), 9] and buffer.dtype == target


def test_copies_on_the_device_stay_there(monkeypatch):
    to, source = Device.on(np.zeros(3, np.float32)), Device.on(np.arange(3.0))
    with monkeypatch.context() as patch:
        patch.setattr(Device, "get", lambda self: pytest.fail("went to the host"))
        patch.setattr(Device, "set", lambda self, values: pytest.fail("came from the host"))
        flat.copy(to, source)
    assert to.get().tolist() == [0, 1, 2]


@pytest.mark.parametrize("place", PLACES)
def test_rooms_lie_where_the_array_lies(place):
    like = PLACES[place]([[1, 2], [3, 4]], np.float32)
    for dtype in (None, "f8", np.float16):
        buffer = flat.empty(like, 5, dtype)
        assert (type(buffer), buffer.shape, buffer.dtype) == (type(like), (5,), np.dtype(dtype or "f4"))
        buffer[...] = 1
    assert host(like).tolist() == [[1, 2], [3, 4]]


def test_groups_of_a_dtype_keep_the_order():
    dtypes = ["f4", "f8", "f4", "i2", "f8", "f4"]
    arrays = {str(place): np.zeros(place, dtype) for place, dtype in enumerate(dtypes)}
    groups = flat.by_dtype(arrays)
    assert [(dtype.str[1:], [*group]) for dtype, group in groups.items()] == [
        ("f4", ["0", "2", "5"]),
        ("f8", ["1", "4"]),
        ("i2", ["3"]),
    ]
    assert all(array is arrays[name] for group in groups.values() for name, array in group.items())


def test_names_of_dtypes():
    assert flat.named_dtype("float16") == flat.named_dtype(np.float16) == np.dtype("f2")
    with pytest.raises(TypeError):
        flat.named_dtype("float17")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert flat.named_dtype(name) == np.dtype(ml_dtypes.bfloat16)


def test_bfloat16_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match="'bfloat16' needs the package ml_dtypes"):
        flat.named_dtype("bfloat16")


def test_arrays_are_taken_as_they_are():
    given = {"w": np.ones((2, 3)), "scalar": np.ones(()), "none": np.ones((0, 2))}
    for arrays in (given, {name: Device.on(array) for name, array in given.items()}):
        checked = flat.check_arrays("parameters", arrays)
        assert list(checked) == list(arrays) and all(checked[name] is arrays[name] for name in arrays)
    assert flat.check_arrays("parameters", {}) == {}
    checked.clear()
    assert len(given) == 3


def test_memory_of_other_packages_is_used():
    """Check that memoryviews, and PyTorch tensors through DLPack, are used without a copy."""
    memory = bytearray(np.arange(4.0).tobytes())
    checked = flat.check_arrays("parameters", {"w": memoryview(memory).cast("d")})
    checked["w"] += 1
    assert np.frombuffer(memory).tolist() == [1, 2, 3, 4]
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3)
    flat.check_arrays("parameters", {"w": tensor})["w"][1] = 5
    assert tensor.tolist() == [0, 5, 0]


def test_wrong_arrays_are_named():
    frozen = np.ones(2)
    frozen.flags.writeable = False
    fine = np.ones(2)
    for wrong, error, message in (
        ([fine], TypeError, "parameters must be a mapping from names to arrays, not list"),
        ({"a": fine, 1: fine}, TypeError, r"parameters\[1\]: names must be strings"),
        ({"a": fine, "w": [1.0]}, TypeError, r"parameters\['w'\] must be an array or another buffer, not list"),
        ({"a": fine, "w": np.ones((2, 3)).T}, ValueError, r"parameters\['w'\] is not C-contiguous"),
        ({"w": Device.on(np.ones((2, 3)).T)}, ValueError, r"parameters\['w'\] is not C-contiguous"),
        ({"a": fine, "w": np.ones(4)[::2]}, ValueError, r"parameters\['w'\] is not C-contiguous"),
        (
            {"a": fine, "w": Device.on(fine)},
            TypeError,
            r"parameters\['w'\] is on GPU 0, but the first .* is in host memory",
        ),
        ({"a": fine, "w": frozen}, ValueError, r"parameters\['w'\] is read-only"),
    ):
        with pytest.raises(error, match=message):
            flat.check_arrays("parameters", wrong)


def test_arrays_that_share_memory_are_named():
    memory = np.zeros(24)
    for place in (np.asarray, Device.on):
        whole = place(memory)
        other, far, none = whole[16:], whole[8:16], whole[4:4]
        for tied in (
            {"head": whole[:8], "other": other, "embedding": whole[:8]},
            {"none": none, "head": whole[:8], "other": other, "embedding": whole[7:8]},
            {"head": whole[2:4].reshape(1, 2), "embedding": whole[:8].reshape(4, 2), "other": other},
        ):
            with pytest.raises(ValueError, match=r"parameters\['head'\] and parameters\['embedding'\] share memory"):
                flat.check_arrays("parameters", tied)
            assert list(flat.check_arrays("buffers", tied, trained=False)) == list(tied)
        apart = {"far": far, "none": none, "same": none, "w": whole[:8], "other": other.reshape(2, 1, 4)}
        assert list(flat.check_arrays("parameters", apart)) == list(apart)


def test_many_arrays_are_compared_at_once():
    memory = np.zeros(40_000)
    many = {str(number): memory[number : number + 1] for number in range(len(memory))}
    assert len(flat.check_arrays("parameters", many)) == len(memory)
    with pytest.raises(ValueError, match=r"parameters\['20000'\] and parameters\['again'\] share memory"):
        flat.check_arrays("parameters", many | {"again": many["20000"]})

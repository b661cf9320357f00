"""Objects that are packed, sent and unpacked, here without a communicator."""

import numpy as np
import pytest

from pycoll.base.errors import RemoteError
from pycoll.base.parcels import (
    FAILED,
    LONG,
    LONG_ARRAY,
    MANY,
    PICKLED,
    failed,
    packed,
    segment_sizes,
    table_rows,
    unpacked,
)

LIMIT = 100
LARGE = np.arange(1 << 17)


def carried(parcel):
    """Unpack a parcel whose segments were copied."""
    segments = [np.frombuffer(bytes(memoryview(one).cast("B")), np.uint8).copy() for one in parcel.segments]
    sizes = [one.nbytes for one in segments]
    assert segment_sizes(parcel.wire) == (sizes[:1] if parcel.wire[:1] == MANY else sizes)
    assert len(parcel.wire) <= LIMIT
    if parcel.wire[:1] == MANY:
        table = segments.pop(0)
        assert [size for _, size in table_rows(table)] == [one.nbytes for one in segments]
        assert [address for address, _ in table_rows(table)] == [one.ctypes.data for one in parcel.segments[1:]]
    return unpacked(parcel.wire, segments)


@pytest.mark.parametrize(
    ("obj", "kind", "segments"),
    [
        ({"a": 1}, PICKLED, 0),
        ("x" * LIMIT, LONG, 1),
        ({"a": LARGE, "b": [LARGE[::-1].copy()]}, LONG, 3),
        ([LARGE] * 2, LONG, 2),  # one object
        ([LARGE + i for i in range(20)], MANY, 22),  # the table, the pickle and the arrays
        (LARGE, LONG_ARRAY, 1),
        (LARGE.reshape(2, -1)[:, ::2], LONG, 1),
    ],
)
def test_kinds(obj, kind, segments):
    parcel = packed(obj, LIMIT)
    assert parcel.wire[:1] == kind and len(parcel.segments) == segments
    np.testing.assert_equal(carried(parcel), obj)


def test_long_buffers_are_not_copied():
    parcel = packed({"a": LARGE}, LIMIT)
    assert np.shares_memory(np.frombuffer(parcel.segments[1], LARGE.dtype), LARGE)
    segments = [np.frombuffer(one, np.uint8).copy() for one in parcel.segments]
    assert np.shares_memory(unpacked(parcel.wire, segments)["a"], segments[1])


def test_errors_are_cut_to_the_limit():
    parcel = failed(3, ValueError("é" * LIMIT), LIMIT)
    assert parcel.wire[:1] == FAILED and len(parcel.wire) == LIMIT
    with pytest.raises(RemoteError, match=r"^rank 3 has sent no object: ValueError: éé"):
        unpacked(parcel.wire, [])

"""Interface dictionaries of arrays in GPU memory."""

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from pycoll.arguments.device_arrays import described, on_device


def interface(**changes):
    return {"shape": (3, 4), "typestr": "<f4", "data": (4096, False), "version": 3, **changes}


def test_interfaces():
    found = described("buf", interface())
    assert found == (4096, (3, 4), np.dtype("f4"), None, False, None) and found.size == 12
    found = described("buf", interface(strides=(32, 8), data=(4096, True), stream=2))
    assert found.strides == (32, 8) and found.read_only and found.stream == 2
    assert described("buf", interface(shape=())).size == 1
    assert described("buf", interface(shape=(0, 4), data=(0, False))).size == 0
    assert described("buf", interface(shape=np.array([2]), typestr="|b1")).shape == (2,)


def test_structured_interfaces():
    found = described("buf", interface(typestr="|V8", descr=[("value", "<f4"), ("index", "<i4")]))
    assert found.dtype == np.dtype([("value", "f4"), ("index", "i4")])
    assert described("buf", interface(typestr="<V2")).dtype == np.dtype("V2")
    assert described("buf", interface(typestr="|V8", descr=[("", "|V8")])).dtype == np.dtype("V8")


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"data": None}, "cannot be read"),
        ({"typestr": "float"}, "cannot be read"),
        ({"shape": None}, "cannot be read"),
        ({"typestr": "?!"}, "cannot be read"),
        ({"data": (0, False)}, "no address"),
        ({"mask": object()}, "masked"),
    ],
)
def test_wrong_interfaces(changes, problem):
    changes = {"typestr": "f99"} if changes == {"typestr": "float"} else changes
    with pytest.raises(TypeError, match=f"recvbuf .*{problem}"):
        described("recvbuf", interface(**changes))


class WithAttributes:
    """An object with the given attributes only."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def test_what_lies_on_a_gpu():
    assert on_device("buf", WithAttributes(__cuda_array_interface__=interface()))
    assert on_device("buf", WithAttributes(__dlpack_device__=lambda: (2, 0)))
    assert on_device("buf", WithAttributes(__dlpack_device__=lambda: (13, 0)))
    assert not on_device("buf", WithAttributes(__dlpack_device__=lambda: (1, 0)))
    assert not on_device("buf", WithAttributes(__array_interface__={}))
    assert not on_device("buf", b"bytes")


def test_a_tensor_that_requires_a_gradient():
    class Tensor:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("use tensor.detach()")

    with pytest.raises(TypeError, match=r"sendbuf cannot be used: use tensor\.detach"):
        on_device("sendbuf", Tensor())

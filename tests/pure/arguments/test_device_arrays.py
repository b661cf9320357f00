"""What needs no GPU: interface dictionaries, the judgement on the MPI library, who gets which GPU."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("mpi4py")

from pycoll.arguments.device_arrays import described, on_device
from pycoll.runtime.gpu.cuda_aware import Facts, judge
from pycoll.runtime.gpu.select import share_out


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


class Told:
    """Only what is asked for."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def test_what_lies_on_a_gpu():
    assert on_device("buf", Told(__cuda_array_interface__=interface()))
    assert on_device("buf", Told(__dlpack_device__=lambda: (2, 0)))
    assert on_device("buf", Told(__dlpack_device__=lambda: (13, 0)))
    assert not on_device("buf", Told(__dlpack_device__=lambda: (1, 0)))
    assert not on_device("buf", Told(__array_interface__={}))
    assert not on_device("buf", b"bytes")


def test_a_tensor_that_requires_a_gradient():
    class Tensor:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("use tensor.detach()")

    with pytest.raises(TypeError, match=r"sendbuf cannot be used: use tensor\.detach"):
        on_device("sendbuf", Tensor())


OPEN_MPI, MPICH = "Open MPI v5.0.11, package", "MPICH Version: 5.0.2"
UCX, CUDA_UCX = {"libucp.so.0"}, {"libucp.so.0", "libuct_cuda.so.0"}


@pytest.mark.parametrize(
    "library, says, loaded, environment, aware",
    [
        # the wheels from PyPI
        (OPEN_MPI, False, UCX, {}, False),
        (MPICH, False, UCX, {}, False),
        (MPICH, None, set(), {}, False),
        # built with CUDA, and everything agrees
        (OPEN_MPI, True, CUDA_UCX, {}, True),
        (OPEN_MPI, True, set(), {}, True),
        (OPEN_MPI, True, UCX, {"OMPI_MCA_pml": "ob1"}, True),
        (OPEN_MPI, True, UCX, {"OMPI_MCA_pml": "^ucx"}, True),
        (OPEN_MPI, True, UCX, {"OMPI_MCA_pml": "^cm"}, False),
        (MPICH, True, CUDA_UCX, {}, True),
        (MPICH, True, {"libfabric.so.1"}, {}, True),
        # the library says yes, but may send by a UCX that cannot
        (OPEN_MPI, True, UCX, {}, False),
        (MPICH, True, UCX, {}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "tcp,sm"}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "^cuda_ipc,cuda_copy"}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "^cuda_ipc"}, True),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "sm,tcp,cuda_ipc"}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "sm,cuda_copy"}, True),
        # the library says no, but gives all messages to a UCX that can
        (OPEN_MPI, False, CUDA_UCX, {"OMPI_MCA_pml": "ucx"}, True),
        (OPEN_MPI, False, CUDA_UCX, {}, False),
        (OPEN_MPI, False, CUDA_UCX, {"OMPI_MCA_pml": "ob1"}, False),
        (OPEN_MPI, False, UCX, {"OMPI_MCA_pml": "ucx"}, False),
        (MPICH, False, CUDA_UCX, {"MPIR_CVAR_NOLOCAL": "1"}, True),
        (MPICH, False, CUDA_UCX, {}, False),
        ("Another MPI", None, CUDA_UCX, {}, False),
    ],
)
def test_what_speaks_for_a_cuda_aware_mpi(library, says, loaded, environment, aware):
    for setting in ("auto", ""):
        found = judge(Facts(setting, library, says, frozenset(loaded), environment))
        assert found.aware == aware and found.reason
    for setting in ("0", "1"):
        found = judge(Facts(setting, library, says, frozenset(loaded), environment))
        assert found.aware == (setting == "1") and f"PYCOLL_CUDA_AWARE={setting}" in found.reason


def test_a_wrong_setting():
    with pytest.raises(ValueError, match="PYCOLL_CUDA_AWARE='yes' is none of auto, 0, 1"):
        judge(Facts("yes", MPICH, None, frozenset(), {}))


@pytest.mark.parametrize(
    "seen, numbers",
    [
        ([["a", "b"]] * 2, [0, 1]),
        ([["a", "b"]] * 5, [0, 1, 0, 1, 0]),
        ([["a"], ["b"], ["c"]], [0, 0, 0]),  # each has one of its own, as Slurm gives them
        ([["a", "b"], ["a"], ["b", "c"]], [0, 0, 0]),
        ([["a", "b"], ["b", "a"]], [0, 0]),
        ([["a"], []], [0, None]),
    ],
)
def test_who_gets_which_gpu(seen, numbers):
    assert share_out(seen) == numbers
    names = [None if number is None else gpus[number] for gpus, number in zip(seen, numbers)]
    assert share_out(seen, names=True) == names


def test_cupy_is_not_imported_before_it_is_needed(tmp_path):
    """Not by pycoll, nor by collectives on the host's buffers."""
    (tmp_path / "cupy.py").write_text("raise SystemExit('cupy was imported')")
    program = (
        "import numpy as np, pycoll, sys; pycoll.allreduce(np.ones(3)); pycoll.Comm\n"
        "from pycoll import parallel, select_device; assert 'cupy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": f"{tmp_path}:."} | _environment())


def _environment():
    import os

    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

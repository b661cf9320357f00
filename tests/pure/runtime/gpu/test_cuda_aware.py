"""Detection of CUDA-aware MPI libraries."""

import pytest

pytest.importorskip("mpi4py")

from pycoll.runtime.gpu.cuda_aware import Facts, judge

OPEN_MPI, MPICH = "Open MPI v5.0.11, package", "MPICH Version: 5.0.2"
UCX, CUDA_UCX = {"libucp.so.0"}, {"libucp.so.0", "libuct_cuda.so.0"}


@pytest.mark.parametrize(
    "library, says, loaded, environment, aware",
    [
        # wheels from PyPI
        (OPEN_MPI, False, UCX, {}, False),
        (MPICH, False, UCX, {}, False),
        (MPICH, None, set(), {}, False),
        # built with CUDA; UCX without CUDA support matters only if it may be selected
        (OPEN_MPI, True, CUDA_UCX, {}, True),
        (OPEN_MPI, True, set(), {}, True),
        (OPEN_MPI, True, UCX, {"OMPI_MCA_pml": "ob1"}, True),
        (OPEN_MPI, True, UCX, {"OMPI_MCA_pml": "^ucx"}, True),
        (OPEN_MPI, True, UCX, {"OMPI_MCA_pml": "^cm"}, False),
        (MPICH, True, CUDA_UCX, {}, True),
        (MPICH, True, {"libfabric.so.1"}, {}, True),
        # the library reports support, but UCX_TLS or the build of UCX may exclude CUDA
        (OPEN_MPI, True, UCX, {}, False),
        (MPICH, True, UCX, {}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "tcp,sm"}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "^cuda_ipc,cuda_copy"}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "^cuda_ipc"}, True),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "sm,tcp,cuda_ipc"}, False),
        (OPEN_MPI, True, CUDA_UCX, {"UCX_TLS": "sm,cuda_copy"}, True),
        # the library reports no support, but may pass all messages to a UCX with CUDA support
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
    with pytest.raises(ValueError, match="PYCOLL_CUDA_AWARE='yes' is not one of: auto, 0, 1"):
        judge(Facts("yes", MPICH, None, frozenset(), {}))

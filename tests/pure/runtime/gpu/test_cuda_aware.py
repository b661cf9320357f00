"""Detection of CUDA-aware MPI libraries."""

import pytest

pytest.importorskip("mpi4py")

from pycoll.runtime.gpu.cuda_aware import Facts, cuda_ipc, judge, protocols

OPEN_MPI, MPICH = "Open MPI v5.0.11, package", "MPICH Version: 5.0.2\nMPICH Device: ch4:ucx ofi"
BY_OFI = "MPICH Version: 5.0.2\nMPICH Device: ch4:ofi,ucx"
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
        # not if MPICH uses another network module, by a setting or because it is the first one of the build
        (MPICH, False, CUDA_UCX, {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}, True),
        (MPICH, False, CUDA_UCX, {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi"}, False),
        (BY_OFI, False, CUDA_UCX, {"MPIR_CVAR_NOLOCAL": "1"}, False),
        (BY_OFI, False, CUDA_UCX, {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}, True),
        ("MPICH Version: 3.3", False, CUDA_UCX, {"MPIR_CVAR_NOLOCAL": "1"}, False),
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


def facts(library, says, environment, loaded=CUDA_UCX, ucx=1):
    return Facts("auto", library, says, frozenset(loaded), environment, ucx)


@pytest.mark.parametrize(
    "library, environment", [(OPEN_MPI, {"OMPI_MCA_pml": "ucx"}), (MPICH, {"MPIR_CVAR_NOLOCAL": "1"})]
)
def test_a_ucx_that_is_cuda_aware_alone(library, environment):
    """It gets contiguous messages between ranks; the library handles everything else with the CPU."""
    for says in (False, None):
        found = {name: direct for name, direct, _ in protocols(facts(library, says, environment))}
        assert found == {
            "messages within a host": True,
            "messages between hosts": True,
            "messages of a rank to itself": False,
            "datatypes with gaps, copies": False,
        }
        assert judge(facts(library, says, environment))[::2] == (True, True)
        assert not judge(facts(library, says, environment)).packs
    assert judge(facts(library, True, environment)).packs
    assert all(direct for _, direct, _ in protocols(facts(library, True, environment)))


def test_two_copies_of_ucx():
    """The maps of a process show which libraries are loaded, not which one of two copies MPI uses."""
    found = judge(facts(OPEN_MPI, False, {"OMPI_MCA_pml": "ucx"}, ucx=2))
    assert not found.aware and "2 copies of UCX are loaded" in found.reason


def test_cuda_ipc():
    assert cuda_ipc(facts(MPICH, False, {})).direct
    assert cuda_ipc(facts(MPICH, False, {"UCX_TLS": "sm,cuda_copy"})) == (
        "cuda_ipc of UCX",
        False,
        "UCX_TLS=sm,cuda_copy",
    )
    assert not cuda_ipc(facts(MPICH, False, {}, loaded={"libucp.so.0"})).direct

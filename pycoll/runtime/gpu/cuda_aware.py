"""Finds out whether MPI is CUDA-aware: from reports of the library, loaded libraries, and settings of the user.

Libraries sometimes report wrongly, and a wrong yes ends in a segmentation fault.  Therefore, the answer is yes only if
all evidence agrees.  ``PYCOLL_CUDA_AWARE=0`` or ``1`` overrides it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mpi4py import MPI


class Support(NamedTuple):
    """Whether MPI is CUDA-aware, and why."""

    aware: bool
    reason: str
    doubtful: bool = True  # False if the user has set it


class Facts(NamedTuple):
    """The facts that decide whether MPI is CUDA-aware."""

    setting: str  # PYCOLL_CUDA_AWARE
    library: str  # from MPI_Get_library_version
    says: bool | None  # MPIX_Query_cuda_support or MPIX_GPU_query_support; None without either
    loaded: frozenset[str]  # file names of the libraries in this process
    environment: Mapping[str, str]


def judge(facts: Facts) -> Support:
    """Decide whether MPI is CUDA-aware; in doubt, it is not."""
    if facts.setting in ("0", "1"):
        return Support(facts.setting == "1", f"set by PYCOLL_CUDA_AWARE={facts.setting}", doubtful=False)
    if facts.setting not in ("", "auto"):
        raise ValueError(f"environment variable PYCOLL_CUDA_AWARE={facts.setting!r} is not one of: auto, 0, 1")
    uses_ucx, no_cuda = _uses_ucx(facts), _ucx_without_cuda(facts)
    if facts.says and (not uses_ucx or not no_cuda):
        return Support(True, "reported by the library" + (", and UCX has loaded its CUDA modules" if uses_ucx else ""))
    if facts.says:
        return Support(False, f"the MPI library reports support, but may send through UCX, which {no_cuda}")
    says = "has no query function" if facts.says is None else "reports no support"
    if not uses_ucx or no_cuda:
        return Support(False, f"the MPI library {says}" + (f", and UCX {no_cuda}" if uses_ucx else ""))
    if "Open MPI" in facts.library and facts.environment.get("OMPI_MCA_pml") == "ucx":
        return Support(True, "all messages go through UCX (OMPI_MCA_pml=ucx), which has loaded its CUDA modules")
    if "MPICH" in facts.library and facts.environment.get("MPIR_CVAR_NOLOCAL") == "1":
        return Support(True, "all messages go through UCX (MPIR_CVAR_NOLOCAL=1), which has loaded its CUDA modules")
    return Support(False, f"the MPI library {says}; UCX can access GPU memory, but some messages may not go through it")


def _uses_ucx(facts: Facts) -> bool:
    """Whether messages may go through UCX."""
    if "Open MPI" in facts.library and not _admits(facts.environment.get("OMPI_MCA_pml", ""), {"ucx"}):
        return False
    return any(name.startswith("libucp") for name in facts.loaded)


def _ucx_without_cuda(facts: Facts) -> str:
    """Why UCX cannot access GPU memory; empty if it can."""
    if not any(name.startswith("libuct_cuda") for name in facts.loaded):
        return "has no CUDA module loaded"
    transports = facts.environment.get("UCX_TLS", "")
    # without cuda_copy UCX cannot distinguish GPU memory from host memory
    if not _admits(transports, {"cuda", "cuda_copy", "all"}):
        return f"does not use cuda_copy (UCX_TLS={transports})"
    return ""


def _admits(setting: str, names: set[str]) -> bool:
    """Whether a list of names, or of excluded names after ``^``, admits one of `names` (after ``^``, all of them)."""
    listed = set(setting.lstrip("^").split(",")) if setting else set()
    return not listed or (not listed & names if setting.startswith("^") else bool(listed & names))


def loaded_libraries() -> dict[str, str]:
    """The shared libraries of this process: file name and path."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return {}
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count("/") and ".so" in line)
    return {os.path.basename(path): path for path in paths}


def _ask_library(libraries: Mapping[str, str]) -> bool | None:
    """The report of the MPI library; None if it has no function for it."""
    for name, path in libraries.items():
        if not name.startswith("libmpi"):
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        if hasattr(library, "MPIX_GPU_query_support"):  # in MPICH, which also checks for GPUs
            supported = ctypes.c_int(0)
            if library.MPIX_GPU_query_support(0, ctypes.byref(supported)) == 0:  # 0 is MPIX_GPU_SUPPORT_CUDA
                return bool(supported.value)
        if hasattr(library, "MPIX_Query_cuda_support"):
            return bool(library.MPIX_Query_cuda_support())
    return None


def facts() -> Facts:
    """The facts about this process."""
    libraries = loaded_libraries()
    return Facts(
        os.environ.get("PYCOLL_CUDA_AWARE", "auto"),
        MPI.Get_library_version(),
        _ask_library(libraries),
        frozenset(libraries),
        os.environ,
    )


@cache
def support() -> Support:
    """Whether the MPI of this process is CUDA-aware."""
    return judge(facts())

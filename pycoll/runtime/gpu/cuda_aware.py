"""Whether MPI is CUDA-aware: what the library reports, which libraries are loaded, and what the user has set.

Libraries say yes or no wrongly now and then, and a wrong yes ends in a segmentation fault; so it is yes only where
everything speaks for it.  ``PYCOLL_CUDA_AWARE=0`` or ``1`` overrules all this.
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
    """Whether MPI is CUDA-aware, and how that was found out."""

    aware: bool
    reason: str
    doubtful: bool = True  # not if the user says so


class Facts(NamedTuple):
    """The facts that decide."""

    setting: str  # PYCOLL_CUDA_AWARE
    library: str  # from MPI_Get_library_version
    says: bool | None  # MPIX_Query_cuda_support or MPIX_GPU_query_support; None without either
    loaded: frozenset[str]  # file names of the libraries in this process
    environment: Mapping[str, str]


def judge(facts: Facts) -> Support:
    """Whether these facts show that MPI is CUDA-aware; if in doubt, no."""
    if facts.setting in ("0", "1"):
        return Support(facts.setting == "1", f"PYCOLL_CUDA_AWARE={facts.setting} says so", doubtful=False)
    if facts.setting not in ("", "auto"):
        raise ValueError(f"environment variable PYCOLL_CUDA_AWARE={facts.setting!r} is not one of: auto, 0, 1")
    uses_ucx, no_cuda = _uses_ucx(facts), _ucx_without_cuda(facts)
    if facts.says and (not uses_ucx or not no_cuda):
        return Support(True, "the MPI library says so" + (", and UCX has its CUDA modules loaded" if uses_ucx else ""))
    if facts.says:
        return Support(False, f"the MPI library says that it is, but UCX, which it may send by, {no_cuda}")
    says = "cannot be asked" if facts.says is None else "says that it is not"
    if not uses_ucx or no_cuda:
        return Support(False, f"the MPI library {says}" + (f", and UCX {no_cuda}" if uses_ucx else ""))
    if "Open MPI" in facts.library and facts.environment.get("OMPI_MCA_pml") == "ucx":
        return Support(True, "messages travel through UCX (OMPI_MCA_pml=ucx), which has its CUDA modules loaded")
    if "MPICH" in facts.library and facts.environment.get("MPIR_CVAR_NOLOCAL") == "1":
        return Support(True, "all messages travel through UCX (MPIR_CVAR_NOLOCAL=1), which has its CUDA modules loaded")
    return Support(
        False, f"the MPI library {says}; UCX can read GPU memory, but some messages may not travel through it"
    )


def _uses_ucx(facts: Facts) -> bool:
    """Whether messages may travel through UCX."""
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
    """Whether a list of names, or of names to be left out after ``^``, lets one of these in, or all of them."""
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
    """What the MPI library reports; None if it has no function for that."""
    for name, path in libraries.items():
        if not name.startswith("libmpi"):
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        if hasattr(library, "MPIX_GPU_query_support"):  # of MPICH, which also checks for GPUs
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
    """Whether this process's MPI is CUDA-aware."""
    return judge(facts())

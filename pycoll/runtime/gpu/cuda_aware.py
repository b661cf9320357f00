"""Finds out whether MPI is CUDA-aware: from reports of the library, loaded libraries, and settings of the user.

Libraries sometimes report wrongly, and a wrong yes ends in a segmentation fault.  Therefore, the answer is yes only if
all evidence agrees.  ``PYCOLL_CUDA_AWARE=0`` or ``1`` overrides it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from mpi4py import MPI

from ...base import settings
from .. import native


class Support(NamedTuple):
    """Whether MPI is CUDA-aware, and why."""

    aware: bool  # for contiguous messages between different ranks
    reason: str
    doubtful: bool = True  # False if the user has set it
    packs: bool = False  # aware for everything else too: datatypes with gaps, copies, messages of a rank to itself


class Facts(NamedTuple):
    """The facts that decide whether MPI is CUDA-aware."""

    setting: str  # PYCOLL_CUDA_AWARE
    library: str  # from MPI_Get_library_version
    says: bool | None  # MPIX_Query_cuda_support or MPIX_GPU_query_support; None without either
    loaded: frozenset[str]  # file names of the libraries in this process
    environment: Mapping[str, str]
    ucx: int = 1  # the number of copies of libucp in this process, if there are any


class Protocol(NamedTuple):
    """One of the ways in which MPI moves data, whether it can access GPU memory, and why."""

    name: str
    direct: bool
    reason: str


def judge(facts: Facts) -> Support:
    """Decide whether MPI is CUDA-aware; in doubt, it is not."""
    packs = _by_library(facts)[0]
    if facts.setting in ("0", "1"):
        reason = f"set by PYCOLL_CUDA_AWARE={facts.setting}"
        return Support(facts.setting == "1", reason, doubtful=False, packs=packs)
    messages = [found for found in protocols(facts) if found.name in _MESSAGES]
    decides = next((found for found in messages if not found.direct), messages[0])
    return Support(decides.direct, decides.reason, packs=packs)


_MESSAGES = "messages within a host", "messages between hosts"
_OTHERS = "messages of a rank to itself", "datatypes with gaps, copies"


def protocols(facts: Facts) -> list[Protocol]:
    """Whether MPI can access GPU memory, for each of the ways in which it moves data.

    The library may know GPU memory itself, or pass messages to a UCX that does.  UCX only gets contiguous messages:
    the library packs datatypes with gaps, and copies for buffered sends, with the CPU.  MPICH never passes messages of
    a rank to itself to UCX.
    """
    by_library, reason = _by_library(facts)
    if by_library:
        return [Protocol(name, True, reason) for name in (*_MESSAGES, *_OTHERS)]
    by_ucx = _by_ucx(facts)
    return [*(Protocol(name, *by_ucx) for name in _MESSAGES), *(Protocol(name, False, reason) for name in _OTHERS)]


def _by_library(facts: Facts) -> tuple[bool, str]:
    """Whether the MPI library itself can access GPU memory, and why."""
    if facts.says is None:
        return False, "the MPI library has no query function"
    if not facts.says:
        return False, "the MPI library reports no support"
    if not _uses_ucx(facts):
        return True, "reported by the library"
    if why := _ucx_without_cuda(facts):
        return False, f"the MPI library reports support, but may send through UCX, which {why}"
    return True, "reported by the library, and UCX has loaded its CUDA modules"


def _by_ucx(facts: Facts) -> tuple[bool, str]:
    """Whether all messages between ranks go through a UCX that can access GPU memory, and why."""
    reason = _by_library(facts)[1]
    if not _uses_ucx(facts) or facts.says:
        return False, reason
    if why := _ucx_without_cuda(facts):
        return False, f"{reason}, and UCX {why}"
    if facts.ucx > 1:
        return False, f"{reason}; {facts.ucx} copies of UCX are loaded, and it is not known which one MPI uses"
    if why := _around_ucx(facts):
        return False, f"{reason}; UCX can access GPU memory, but {why}"
    return True, f"all messages go through UCX ({_selected_by(facts)}), which has loaded its CUDA modules"


def _around_ucx(facts: Facts) -> str:
    """Why some messages may not go through UCX; empty if all do."""
    settings = facts.environment
    if "Open MPI" in facts.library:
        pml = settings.get("OMPI_MCA_pml", "not set")
        return "" if pml == "ucx" else f"some messages may not go through it (OMPI_MCA_pml is {pml})"
    if "MPICH" not in facts.library:
        return "it is not known which messages go through it"
    netmod = settings.get("MPIR_CVAR_CH4_NETMOD") or _default_netmod(facts.library)
    if netmod != "ucx":
        return f"messages go through another module of MPICH (MPIR_CVAR_CH4_NETMOD, or its default, is {netmod})"
    local = settings.get("MPIR_CVAR_NOLOCAL", "not set")
    return "" if local == "1" else f"messages within a host do not go through it (MPIR_CVAR_NOLOCAL is {local})"


def _selected_by(facts: Facts) -> str:
    return "OMPI_MCA_pml=ucx" if "Open MPI" in facts.library else "MPIR_CVAR_NOLOCAL=1, network module ucx"


def _default_netmod(library: str) -> str:
    """The network module that MPICH uses without MPIR_CVAR_CH4_NETMOD: the first one that it was built with."""
    found = re.search(r"MPICH Device:\s*ch4:(\w+)", library)
    return found[1] if found else "unknown"


def _uses_ucx(facts: Facts) -> bool:
    """Whether messages may go through UCX."""
    if "Open MPI" in facts.library and not _admits(facts.environment.get("OMPI_MCA_pml", ""), {"ucx"}):
        return False
    if "MPICH" in facts.library and facts.environment.get("MPIR_CVAR_CH4_NETMOD") not in (None, "", "ucx"):
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


def cuda_ipc(facts: Facts) -> Protocol:
    """Whether UCX can copy between the GPU memory of two processes on a host; without it, it copies by the host."""
    name, transports = "cuda_ipc of UCX", facts.environment.get("UCX_TLS", "")
    if not any(name.startswith("libuct_cuda") for name in facts.loaded):
        return Protocol(name, False, "UCX has no CUDA module loaded")
    if not _admits(transports, {"cuda", "cuda_ipc", "all"}):
        return Protocol(name, False, f"UCX_TLS={transports}")
    return Protocol(name, True, "possible; UCX_PROTO_INFO=y shows whether a message uses it")


def _admits(setting: str, names: set[str]) -> bool:
    """Whether a list of names, or of excluded names after ``^``, admits one of `names` (after ``^``, all of them)."""
    listed = set(setting.lstrip("^").split(",")) if setting else set()
    return not listed or (not listed & names if setting.startswith("^") else bool(listed & names))


def _ask_library(libraries: Mapping[str, str]) -> bool | None:
    """The report of the MPI library; None if it has no function for it."""
    for path, name in libraries.items():
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
    libraries = native.loaded_libraries()
    return Facts(
        settings.cuda_aware(),
        MPI.Get_library_version(),
        _ask_library(libraries),
        frozenset(libraries.values()),
        os.environ,
        sum(1 for name in libraries.values() if name.startswith("libucp")),
    )


@cache
def support() -> Support:
    """Whether the MPI of this process is CUDA-aware."""
    return judge(facts())

"""Print the environment that pycoll runs in: ``mpiexec -n 4 python -m pycoll.info``.

Rank 0 prints versions, the MPI library and its transports, whether it is CUDA-aware and why, and the hosts and GPUs of
all ranks.  It looks for problems of the installation, and says what to do: a launcher of another MPI library, an mpi4py
that was built for another one, ranks that run alone.
"""

from __future__ import annotations

from .base.mpi import MPI  # first, because it says if there is no MPI library

# isort: split
import importlib.metadata
import os
import platform
import re
from collections import defaultdict

import pycoll

from .base.command_line import Parser, printed_once
from .base.domains import in_words
from .base.launcher import runs_alone
from .base.numbers import ranks_named
from .runtime import native
from .runtime.gpu import cuda_aware
from .runtime.open_core import why_not_shared, why_unusable
from .selection.choices import unknown_variables

THREADS = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}


def versions() -> dict[str, str]:
    """The versions of pycoll, Python, and the installed packages that pycoll uses."""
    found = {"pycoll": pycoll.__version__, "Python": platform.python_version()}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in ("mpi4py", "numpy", "ml_dtypes", "ml-dtypes", "torch") or name.startswith("cupy"):
            found[name] = distribution.version
    return found


def transports(facts: cuda_aware.Facts) -> str:
    """The transports of messages, as far as the library, its settings and loaded modules show them."""
    found = re.findall(r"MPICH Device:\s*(.*)", facts.library)
    names = (
        *("OMPI_MCA_pml", "OMPI_MCA_btl", "MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NOLOCAL", "FI_PROVIDER"),
        *("UCX_TLS", "UCX_NET_DEVICES", "UCX_CUDA_IPC_ENABLE_GET_ZCOPY"),
    )
    found += [f"{name}={facts.environment[name]}" for name in names if name in facts.environment]
    modules = sorted(name.removeprefix("libuct_").partition(".")[0] for name in facts.loaded if "libuct_" in name)
    if any(name.startswith("libucp") for name in facts.loaded):
        found.append(f"UCX is loaded, with the modules {', '.join(modules) or 'none'}")
    if any(name.startswith("libfabric") for name in facts.loaded):
        found.append("libfabric is loaded")
    return "; ".join(found) or "unknown"


def protocols(facts: cuda_aware.Facts) -> dict[str, str]:
    """For each way in which MPI moves data, whether it can access GPU memory, and why."""
    found = [*cuda_aware.protocols(facts), cuda_aware.cuda_ipc(facts)]
    return {f"  {one.name}": f"{'yes' if one.direct else 'no'}: {one.reason}" for one in found}


def gpu() -> str:
    """The current GPU of this process."""
    try:
        import cupy  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return "none (CuPy is not installed)"
    runtime = cupy.cuda.runtime
    try:
        count, number = runtime.getDeviceCount(), runtime.getDevice()
        name = runtime.getDeviceProperties(number)["name"].decode()
        free, total = runtime.memGetInfo()
    except runtime.CUDARuntimeError as error:
        return f"none ({error})"
    return f"{number} of {count}: {name}, {free >> 20} of {total >> 20} MiB free, {runtime.deviceGetPCIBusId(number)}"


def launchers() -> list[str]:
    """The `mpiexec` in the directories of PATH."""
    found = [os.path.join(folder, "mpiexec") for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def belongs(launcher: str, library: str) -> bool:
    """Whether a launcher and a library are in one installation: below one directory, which is not the root."""
    prefixes = {os.path.dirname(os.path.dirname(path)) for path in (launcher, os.path.realpath(launcher))}
    return any(os.path.commonpath([prefix, os.path.realpath(library)]) == prefix != "/" for prefix in prefixes)


def problems() -> list[str]:
    """What is wrong with the installation of MPI, and what to do about it."""
    found = [runs_alone(MPI.COMM_WORLD.size)]
    vendor, _ = MPI.get_vendor()
    if (vendor == "Open MPI") != native.library().startswith("Open MPI"):
        found.append(
            f"mpi4py was built for {vendor}, but {native.library()} is loaded: load the module of the other library, "
            "or build mpi4py with this one (`pip install --force-reinstall --no-binary mpi4py mpi4py`)"
        )
    library, paths = native.library_file(), launchers()
    if library and paths and not belongs(paths[0], library):
        better = next((path for path in paths if belongs(path, library)), "the one of this library")
        found.append(f"mpiexec is {paths[0]}, which may not belong to the MPI library {library}: use {better}")
    return [one for one in found if one]


def of_this_rank() -> dict[str, str]:
    """The facts that may differ between ranks; empty values are not printed."""
    facts = cuda_aware.facts()
    found = cuda_aware.judge(facts)
    return {
        "host": MPI.Get_processor_name(),
        "domains": in_words(),
        "compiled core": f"not used: {why}" if (why := why_unusable()) else "used",
        "memory that ranks of a host share": f"not used: {why}" if (why := why_not_shared()) else "used",
        "CUDA-aware": f"{'yes' if found.aware else 'no'}: {found.reason}",
        **protocols(facts),
        "transports": transports(facts),
        "GPU": gpu(),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "not set"),
        "warning": unknown_variables(),
        "problem": "\n  ".join(problems()),
    }


def main() -> None:
    """Gather the facts of all ranks and print them."""
    comm = MPI.COMM_WORLD
    with printed_once(comm):
        Parser(prog="python -m pycoll.info", description=__doc__).parse_args()
    ranks = comm.gather(of_this_rank())
    if ranks is None:
        return
    about = versions()
    about["MPI library"] = f"{native.library()} (MPI {MPI.Get_version()[0]}.{MPI.Get_version()[1]})"
    about["MPI library file"] = native.library_file() or "unknown"
    about["mpiexec"] = ", then ".join(launchers()) or "not on PATH"
    about["thread level"] = THREADS[MPI.Query_thread()]
    about["ranks"] = str(comm.size)
    for name, value in about.items():
        print(f"{name}: {value}")
    for key in ranks[0]:
        same = defaultdict[str, list[int]](list)
        for rank, one in enumerate(ranks):
            same[one[key]].append(rank)
        for value, members in same.items():
            if not value:
                continue
            where = "" if len(same) == 1 else f" on {ranks_named(members)}"
            print(f"{key}{where}: {value}")


if __name__ == "__main__":
    main()

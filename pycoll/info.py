"""Print the environment that pycoll runs in: ``mpiexec -n 4 python -m pycoll.info``.

Rank 0 prints versions, the MPI library and its transports, whether it is CUDA-aware and why, and the hosts and GPUs of
all ranks.
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
from .runtime import native
from .runtime.gpu import cuda_aware
from .runtime.host import why_not_shared, why_unusable
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


def of_this_rank() -> dict[str, str]:
    """The facts that may differ between ranks; empty values are not printed."""
    facts = cuda_aware.facts()
    found = cuda_aware.judge(facts)
    return {
        "host": MPI.Get_processor_name(),
        "compiled core": f"not used: {why}" if (why := why_unusable()) else "used",
        "memory that ranks of a host share": f"not used: {why}" if (why := why_not_shared()) else "used",
        "CUDA-aware": f"{'yes' if found.aware else 'no'}: {found.reason}",
        **protocols(facts),
        "transports": transports(facts),
        "GPU": gpu(),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "not set"),
        "warning": unknown_variables(),
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
            where = "" if len(same) == 1 else f" on rank{'s' * (len(members) > 1)} {', '.join(map(str, members))}"
            print(f"{key}{where}: {value}")


if __name__ == "__main__":
    main()

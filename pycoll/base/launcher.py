"""The ranks of a job as its launcher says them, also before MPI is initialized."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

# the variables with these numbers, for Open MPI; MPICH and Intel MPI; HPE Cray PALS
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
)


def launched_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers that torchrun would set in `NAMES`; nothing if no known launcher has started the process."""
    for names in _LAUNCHERS:
        found = [environment.get(name, "") for name in names]
        if all(value.isdecimal() for value in found):
            return dict(zip(NAMES, found))
    return _slurm_ranks(environment)


def _slurm_ranks(environment: Mapping[str, str]) -> dict[str, str]:
    if "SLURM_STEP_ID" not in environment or "SLURM_PROCID" not in environment:  # the script of a job has no rank
        return {}
    size = environment.get(_slurm_size(environment), "1")
    tasks = _tasks_of_nodes(environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", ""))
    node = int(environment.get("SLURM_NODEID", "0"))
    here = tasks[node] if node < len(tasks) else int(size)
    return dict(zip(NAMES, (environment["SLURM_PROCID"], size, environment.get("SLURM_LOCALID", "0"), str(here))))


def _slurm_size(environment: Mapping[str, str]) -> str:
    """The variable with the number of tasks of a step."""
    return "SLURM_STEP_NUM_TASKS" if environment.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"


def _tasks_of_nodes(text: str) -> list[int]:
    """The number of tasks on each node, from the form of Slurm: ``2(x3),1`` is 2, 2, 2, 1."""
    found: list[int] = []
    for tasks, nodes in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(tasks)] * int(nodes or 1)
    return found


def runs_alone(ranks: int, environment: Mapping[str, str] = os.environ) -> str:
    """Why COMM_WORLD has only one rank although a launcher has started several processes; empty if it has not."""
    names = [size for _, size, _, _ in _LAUNCHERS]
    if "SLURM_STEP_ID" in environment:  # srun has started this process; the script of a job has the variables, too
        names.append(_slurm_size(environment))
    started = {name: int(value) for name in names if (value := environment.get(name, "")).isdecimal()}
    name = max(started, key=lambda name: started[name], default="")
    if ranks > 1 or not name or started[name] < 2:
        return ""
    return (
        f"COMM_WORLD has one rank, but {name} is {started[name]}: each process runs alone, because the MPI library "
        "does not understand this launcher. Use the mpiexec of this library, or with Slurm `srun --mpi=pmix` (Open "
        "MPI) or `srun --mpi=pmi2` (MPICH); `python -m pycoll.info` says which library this is"
    )

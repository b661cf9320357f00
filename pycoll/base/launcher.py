"""The ranks of a job as its launcher says them, before MPI is initialized."""

from __future__ import annotations

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
    size = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS", "1")
    tasks = _tasks_of_nodes(environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", ""))
    node = int(environment.get("SLURM_NODEID", "0"))
    here = tasks[node] if node < len(tasks) else int(size)
    return dict(zip(NAMES, (environment["SLURM_PROCID"], size, environment.get("SLURM_LOCALID", "0"), str(here))))


def _tasks_of_nodes(text: str) -> list[int]:
    """The number of tasks on each node, from the form of Slurm: ``2(x3),1`` is 2, 2, 2, 1."""
    found: list[int] = []
    for tasks, nodes in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(tasks)] * int(nodes or 1)
    return found

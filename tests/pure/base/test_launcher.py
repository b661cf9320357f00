"""The ranks of a job, from the variables of its launcher; ranks that run alone although it has started several."""

import pytest

from pycoll.base.launcher import launched_ranks, runs_alone

OPEN_MPI = {
    f"OMPI_COMM_WORLD_{name}": value for name, value in zip(("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"), "3412")
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_TASKS_PER_NODE": "2(x2)",
}
RANKS = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize("environment", [OPEN_MPI, MPICH, SLURM, {**SLURM, **MPICH}])
def test_ranks(environment):
    assert launched_ranks(environment) == RANKS


@pytest.mark.parametrize(
    ("node", "tasks", "here"), [("0", "3,1(x2)", "3"), ("2", "3,1(x2)", "1"), ("0", "4", "4"), ("5", "", "4")]
)
def test_tasks_of_nodes(node, tasks, here):
    given = {**SLURM, "SLURM_NODEID": node, "SLURM_TASKS_PER_NODE": tasks}
    assert launched_ranks(given)["LOCAL_WORLD_SIZE"] == here


def test_the_tasks_of_a_step_count():
    given = {**SLURM, "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "1,3"}
    assert launched_ranks(given) == {**RANKS, "LOCAL_WORLD_SIZE": "3"}


@pytest.mark.parametrize("environment", [{}, {"PMI_RANK": "0"}, {**SLURM, "SLURM_STEP_ID": None}])
def test_no_launcher(environment):
    assert launched_ranks({name: value for name, value in environment.items() if value is not None}) == {}


@pytest.mark.parametrize(
    ("ranks", "environment", "named"),
    [
        (1, {}, ""),
        (1, {"PMI_SIZE": "1", "OMPI_COMM_WORLD_SIZE": "one"}, ""),
        (4, {"PMI_SIZE": "4"}, ""),
        (1, {"PMI_SIZE": "4"}, "PMI_SIZE is 4"),
        (1, {"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE is 2"),
        (1, {"SLURM_NTASKS": "8"}, ""),  # in the script of a job
        (1, {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, ""),
        (1, {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"}, "SLURM_NTASKS is 8"),
        (1, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}, "SLURM_STEP_NUM_TASKS is 3"),
    ],
)
def test_alone(ranks, environment, named):
    text = runs_alone(ranks, environment)
    assert named in text and bool(text) == bool(named)

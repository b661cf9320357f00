"""Ranks that run alone although a launcher has started several."""

import pytest

from pycoll.base.command_line import runs_alone


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

"""Under mpiexec: rank 0 alone reports, and a test that fails on one rank ends the job with its traceback."""

import os
import sys

import hypothesis
import pytest

hypothesis.settings.register_profile("pycoll", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("pycoll")


def _world(config):
    """COMM_WORLD if this is a rank of several, else None; pure tests never come near MPI."""
    if not config.getoption("--with-mpi"):
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if (world := _world(config)) and world.rank > 0:
        config.pluginmanager.get_plugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and (world := _world(item.config)):
        sys.stderr.write(f"\nrank {world.rank} of {world.size} failed in {item.nodeid}:\n{report.longreprtext}\n")
        sys.stderr.flush()
        world.Abort(1)

"""Under mpiexec, report on rank 0 only; a test that fails on any rank ends the job with its traceback."""

import gc
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from pathlib import Path

import hypothesis
import pytest

from tests.launch import COUNTS
from tests.quick import repeats

STARTED = time.monotonic()
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
os.environ["PYCOLL_TUNING"] = "off"  # the tests expect the built-in rules, not a tuning file of the user
os.environ["PYCOLL_NATIVE"] = "0"  # test the schedules; test_comm_collectives_short.py covers calls passed to MPI

# All ranks must draw the same examples, so nothing here may depend on time or on files.
for _profile, _examples in {"pycoll": 100, "quick": 20}.items():
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
hypothesis.settings.load_profile("pycoll")


def pytest_addoption(parser):
    parser.addoption(
        "--minutes",
        type=float,
        help="skip tests after this time; slow ones come last, in an order that the commit decides",
    )


def _world(config):
    """Return COMM_WORLD if the job has several ranks, else None; without --with-mpi, MPI is not imported."""
    if not config.getoption("--with-mpi"):
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if (world := _world(config)) and world.rank > 0:
        config.pluginmanager.get_plugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests of one algorithm as slow if the quick selection tests others like it; it still proves all of them."""
    for item in items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        proved = item.path.name == "test_costs.py"
        if repeats(given.get("primitive"), given.get("algorithm"), proved):
            item.add_marker(pytest.mark.slow)
    if config.getoption("--minutes") is not None:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, cwd=Path(__file__).parent).stdout
        items.sort(
            key=lambda item: (
                hashlib.sha256(commit + bytes(item.path)).digest() if item.get_closest_marker("slow") else b""
            )
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - STARTED > 60 * minutes:
        pytest.skip(f"{minutes:g} minutes are over")


def pytest_collection_finish():
    """Leave what exists out of later garbage collections, which many tests start; each would take 0.2 seconds."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    if (path := os.environ.get(COUNTS)) and not ((world := _world(config)) and world.rank > 0):
        count = {name: len(reports) for name, reports in terminalreporter.stats.items()}
        Path(path).write_text(f"{count.get('passed', 0)} {count.get('failed', 0) + count.get('error', 0)}")


def end_job(config, world, where, text):
    """Print the failure, with the output capture of pytest suspended, and end all ranks."""
    from pycoll.api import abort

    config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
    abort.end_job(f"{where}:\n{text}", world)


@pytest.fixture
def together(request):
    """Return a function that runs a check on a drawn case.

    If the check fails, it ends the job before Hypothesis shrinks the case on one rank only.
    """

    def run(check, *case):
        request.node.drawn_case = case
        try:
            check(*case)
        except Exception:
            if not (world := _world(request.config)):
                raise
            end_job(request.config, world, f"{request.node.nodeid} with {case}", traceback.format_exc())

    return run


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and (world := _world(item.config)):
        end_job(item.config, world, item.nodeid, report.longreprtext)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    report = (yield).get_result()
    if report.failed and (world := _world(collector.config)):
        end_job(collector.config, world, f"collecting {collector.nodeid}", report.longreprtext)


# The methods of pytest-timeout do not work here: its signal does not interrupt a waiting MPI call, and its report is
# shown on rank 0 only.


def pytest_timeout_set_timer(item, settings):
    if not (world := _world(item.config)):
        return None
    item.mpi_timer = threading.Timer(settings.timeout, _give_up, (item, world, settings.timeout))
    item.mpi_timer.daemon = True
    item.mpi_timer.start()
    return True


def pytest_timeout_cancel_timer(item):
    if not hasattr(item, "mpi_timer"):
        return None
    item.mpi_timer.cancel()
    return True


def _give_up(item, world, seconds):
    """Print where this rank waits, without the frames of pytest and Hypothesis, and end the job."""
    from pycoll.api import abort

    item.config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
    ours = [frame for frame in _frames() if not frame.filename.startswith(LIBRARIES)]
    drawn = f" with {item.drawn_case}" if hasattr(item, "drawn_case") else ""
    sys.stderr.write(
        f"\nrank {world.rank} of {world.size}: Timeout after {seconds:.0f} s in {item.nodeid}{drawn}\n"
        + "".join(traceback.format_list(ours))
    )
    sys.stderr.flush()
    time.sleep(abort.PAUSE)
    os._exit(1)


def _frames():
    """Return the frames of all threads but this one, the main thread last."""
    threads = sorted(set(sys._current_frames()) - {threading.get_ident()}, key=threading.main_thread().ident.__eq__)
    return [frame for thread in threads for frame in traceback.extract_stack(sys._current_frames()[thread])]


@pytest.fixture
def directory():
    """Create a temporary directory on rank 0; all ranks get its path."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    path = world.bcast(tempfile.mkdtemp() if world.rank == 0 else None)
    yield Path(path)
    world.Barrier()
    if world.rank == 0:
        shutil.rmtree(path)


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Check after each MPI test that no collective is still in progress."""
    yield
    if request.node.get_closest_marker("mpi"):
        from pycoll.runtime import progress

        assert progress.tasks == []

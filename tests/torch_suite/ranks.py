"""Run tests of torch in ranks that mpiexec has started: ``mpiexec -n 3 python -m tests.torch_suite.ranks ...``.

The arguments are a directory that the ranks share, a file for the results, the seconds that a test may take, and a file
with the names of the tests.  Rank 0 appends a line to the results before each test, and one after it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import shutil
import sys
import time
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from typing import Any

from mpi4py import MPI

from tests.torch_suite import backend

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
SECONDS = timedelta(seconds=60)  # of a process group


class Runner:
    """Runs tests on all ranks together, in a process group of their own each."""

    def __init__(self, folder: Path, results: Path, seconds: float) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self._folder, self._results, self._seconds = folder, results, seconds

    def run(self, name: str) -> None:
        """Run a test on all ranks, and write what came out; end the job if it takes too long."""
        self._write([name])
        faulthandler.dump_traceback_later(self._seconds, exit=True)
        began = time.monotonic()
        self._prepare()
        found = self._outcome(name)
        every = self._together(found)
        faulthandler.cancel_dump_traceback_later()
        self._write([name, *_agreed(every), round(time.monotonic() - began, 1)])

    def _write(self, line: list[Any]) -> None:
        if self._comm.rank == 0:
            with self._results.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _together(self, value: Any = None) -> list[Any]:
        """Gather a value from all ranks; a rank that waits leaves the processor to others."""
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(0.001)
        return self._comm.allgather(value)

    def _prepare(self) -> None:
        """Empty the directories with which the tests synchronize the ranks."""
        self._together()
        if self._comm.rank == 0:
            for name in ("barrier", "test_dir", "init"):
                shutil.rmtree(self._folder / name, ignore_errors=True)
                (self._folder / name).mkdir()
        backend.Barrier.barrier_id = 0
        self._together()

    def _outcome(self, name: str) -> tuple[str, str]:
        """Run a test on this rank; return what came out, and why."""
        case = backend.Suite(name)
        case.rank, case.file_name = self._comm.rank, str(self._folder / "init" / "store")
        method = getattr(case, name)
        if getattr(method, "__unittest_skip__", False):
            return SKIPPED, method.__unittest_skip_why__
        before = dict(os.environ)
        try:
            backend.initialize(case, name, SECONDS)
            method()
            case._barrier()
        except unittest.SkipTest as skip:
            return SKIPPED, str(skip)
        except SystemExit as leave:
            reason = backend.SKIPS.get(leave.code)
            return (SKIPPED, reason) if reason else (FAILED, f"exit code {leave.code}")
        except Exception:
            traceback.print_exc()  # another rank may hang
            return FAILED, traceback.format_exc()
        finally:
            os.environ.clear()
            os.environ.update(before)
            with contextlib.suppress(Exception):  # the test has destroyed it, or a rank has failed
                backend.finalize()
        return PASSED, ""


def _agreed(every: list[tuple[str, str]]) -> tuple[str, str]:
    """Return what came out of a test: it passes if it passes on all ranks."""
    failed = {rank: text for rank, (found, text) in enumerate(every) if found == FAILED}
    if failed:
        return FAILED, "\n".join(f"rank {rank}: {text}" for rank, text in failed.items())
    skipped = [text for found, text in every if found == SKIPPED]
    return (SKIPPED, skipped[0]) if skipped else (PASSED, "")


def main() -> None:
    """Run the tests that the file names."""
    folder, results, seconds, names = sys.argv[1:]
    faulthandler.enable()
    runner = Runner(Path(folder), Path(results), float(seconds))
    for name in Path(names).read_text().split():
        runner.run(name)


if __name__ == "__main__":
    main()

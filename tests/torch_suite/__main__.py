"""Run the tests of torch.distributed on the backend "pycoll", and compare the failures with those known.

``python -m tests.torch_suite --ranks 3 [--seconds 120] [--backend gloo] [TESTS]``; TESTS are parts of their names.  A
test that takes longer ends its job, and another job runs the tests after it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import unittest
import unittest.mock
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests import launch
from tests.torch_suite.known import KNOWN

HUNG = "hung"


class Result(NamedTuple):
    """What came out of a test."""

    name: str
    outcome: str
    reason: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it failed or hung."""
        return self.outcome not in ("passed", "skipped")

    def summary(self) -> str:
        """Return why it was skipped, or why it is known to fail."""
        return KNOWN.get(self.name, "") if self.failed else self.reason


def run(ranks: int, names: list[str], seconds: float, backend: str = "gloo") -> list[Result]:
    """Run tests on `ranks` ranks, each for at most `seconds`, in as many jobs as it takes.

    The backend of the tests is `backend`: those of all-to-all on the CPU run for "mpi" only.
    """
    results: list[Result] = []
    while len(results) < len(names):
        results += _run_job(ranks, names[len(results) :], seconds, backend)
    return results


def _run_job(ranks: int, names: list[str], seconds: float, backend: str) -> list[Result]:
    """Run tests until one hangs."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "names").write_text("\n".join(names))
        files = [str(folder), str(folder / "results"), str(seconds), str(folder / "names")]
        environment = {
            "BACKEND": backend,
            "WORLD_SIZE": str(ranks),
            "TEMP_DIR": directory,
            "INIT_METHOD": f"file://{folder}/init/again",  # for tests that create the group anew
            "OMP_NUM_THREADS": "1",
            "PYCOLL_TUNING": "off",
        }
        arguments = ["-m", "tests.torch_suite.ranks", *files]
        job = launch.run(ranks, arguments, seconds * len(names), environment=environment)
        written = folder / "results"
        lines = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
    results = [Result(*line) for line in lines if len(line) > 1]
    if not lines or (job.code and len(results) == len(names)):
        raise RuntimeError(f"the job failed outside the tests:\n{job.output}")
    if len(results) < len(names):
        results.append(Result(lines[-1][0], HUNG, job.output[-20000:], seconds))
    return results


def names_of_tests(parts: Sequence[str] = ("",)) -> list[str]:
    """Return the names of the tests that contain one of `parts`."""
    with unittest.mock.patch.dict(os.environ, BACKEND="gloo", WORLD_SIZE="1"):  # the module of the tests reads them
        from torch.testing._internal.distributed.distributed_test import DistributedTest

    names = unittest.TestLoader().getTestCaseNames(DistributedTest._DistTestBase)
    return [name for name in names if any(part in name for part in parts)]


def unexpected(results: list[Result]) -> list[str]:
    """Return a line for each failure that is not known, and for each known one that passes."""
    return [f"{each.name} failed" for each in results if each.failed and each.name not in KNOWN] + [
        f"{each.name} passed, but is a known failure: {KNOWN[each.name]}"
        for each in results
        if each.outcome == "passed" and each.name in KNOWN
    ]


def main() -> None:
    """Run the tests that the command line selects, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_suite", description=__doc__)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120.0, help="that a test may take")
    parser.add_argument(
        "--backend", choices=["gloo", "mpi"], default="gloo", help="backend for the tests; mpi needs 3 ranks"
    )
    parser.add_argument("--verbose", action="store_true", help="print tracebacks")
    parser.add_argument("tests", nargs="*", default=[""], help="parts of the names of tests; all tests by default")
    options = parser.parse_args()
    results = run(options.ranks, names_of_tests(options.tests), options.seconds, options.backend)
    for result in results:
        print(f"{result.outcome:8} {result.seconds:6.1f} s  {result.name}  {result.summary()}".rstrip())
        if options.verbose and result.failed:
            print(result.reason)
    counts = Counter(result.outcome for result in results)
    print(f"{options.ranks} ranks: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if found := unexpected(results):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()

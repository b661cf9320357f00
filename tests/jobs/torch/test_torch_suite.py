"""The tests of torch.distributed itself, on the backend "pycoll"."""

import importlib.metadata
import importlib.util

import pytest

from tests.torch_suite.__main__ import names_of_tests, run, unexpected

RANKS = 2  # with four ranks, few more tests run, but on two cores they take several times as long
VERSIONS = "2.13", "2.15"  # of torch; tests/torch_suite/known.py lists the failures of their tests

SECONDS = 120.0  # that a test may take; it takes less than 1, but 10 if ranks disagree


def missing():
    """Why the tests cannot run, or an empty string."""
    if not importlib.util.find_spec("torch"):
        return "torch is not installed"
    version = importlib.metadata.version("torch")
    if ".".join(version.split(".")[:2]) not in VERSIONS:
        return f"needs the tests of torch {' or '.join(VERSIONS)}, not {version}"
    return (
        "" if importlib.util.find_spec("expecttest") else "expecttest, which the tests of torch need, is not installed"
    )


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def check(results):
    """Check that all tests pass that have not been skipped, but for those known to fail."""
    details = "\n".join(f"{each.name}: {each.reason}" for each in results if each.failed)
    assert unexpected(results) == [], details
    assert any(each.outcome == "passed" for each in results)


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_told_that_the_backend_is_gloo():
    check(run(RANKS, names_of_tests(), SECONDS))


@pytest.mark.once
@pytest.mark.slow
def test_told_that_the_backend_is_mpi():
    check(run(3, names_of_tests(["test_all_to_all"]), SECONDS, "mpi"))

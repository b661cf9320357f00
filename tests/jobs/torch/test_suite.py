"""The tests of torch.distributed itself, on the backend "pycoll"."""

import importlib.metadata
import importlib.util

import pytest

VERSION = "2.13"  # of torch; tests/torch_suite/known.py lists the failures of its tests


def missing():
    """Why the tests cannot run, or an empty string."""
    if not importlib.util.find_spec("torch"):
        return "torch is not installed"
    version = importlib.metadata.version("torch")
    if not version.startswith(f"{VERSION}."):
        return f"needs the tests of torch {VERSION}, not {version}"
    return (
        "" if importlib.util.find_spec("expecttest") else "expecttest, which the tests of torch need, is not installed"
    )


# 60 s a number of ranks
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_tests_of_torch(ranks):
    from tests.torch_suite.__main__ import names_of_tests, run, unexpected

    results = run(ranks, names_of_tests(ranks), 120.0)
    details = "\n".join(f"{each.name}: {each.reason}" for each in results if each.failed)
    assert unexpected(results) == [], details
    assert sum(each.outcome == "passed" for each in results) > 80

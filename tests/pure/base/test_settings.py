"""Environment variables: their names and values, and warnings about unknown names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pycoll
from pycoll.base import settings
from pycoll.schedule.registry import PRIMITIVES
from pycoll.selection.choices import known_variables, unknown_variables

PACKAGE = Path(pycoll.__file__).parent


def longest_with(**variables):
    """Return the longest message within a host and between hosts, each without and with a tuned value of 1000 bytes."""
    program = "from pycoll.base.settings import longest; print(*(longest(s, t) for s in (0, 1) for t in (None, 1000)))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYCOLL_")} | variables
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True, timeout=240
    )
    return list(map(int, done.stdout.split()))


def test_the_default_asked_for_is_not_taken_for_unset():
    assert longest_with() == [4 << 20, 1000, 56 << 10, 1000]
    assert longest_with(PYCOLL_SEGMENT="4194304") == [4 << 20] * 4
    assert longest_with(PYCOLL_SEGMENT="8192") == [8192] * 4


def test_segments_of_buffers_in_gpu_memory(monkeypatch):
    monkeypatch.setattr(settings, "SEGMENT", None)
    assert [settings.longest_on_gpu(several) for several in (False, True)] == [64 << 20, 4 << 20]
    monkeypatch.setattr(settings, "SEGMENT", 1000)
    assert settings.longest_on_gpu(False) == 1000
    settings.configure(device_segment=2000)
    assert settings.longest_on_gpu(False) == 2000
    settings.configure(device_segment=None)
    with pytest.raises(ValueError, match="device_segment=0 is not a positive"):
        settings.configure(device_segment=0)


def test_all_variables_that_the_package_names_are_known():
    named = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"\bPYCOLL_[A-Z]+(?:_[A-Z]+)*\b", path.read_text())
    }
    assert named <= set(known_variables())
    assert {name for name in named if name in settings.__doc__} - {"PYCOLL_ALLREDUCE"} == set(settings.VARIABLES)
    assert {f"PYCOLL_{name.upper()}" for name in PRIMITIVES} <= set(known_variables())


@pytest.fixture
def environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("PYCOLL_")]:
        monkeypatch.delenv(name)
    return monkeypatch.setenv


@pytest.mark.parametrize(
    "wrong, nearest",
    [
        ("PYCOLL_ALREDUCE", "PYCOLL_ALLREDUCE"),
        ("PYCOLL_SEGMENTS", "PYCOLL_SEGMENT"),
        ("PYCOLL_REDUCESCATTER", "PYCOLL_REDUCE_SCATTER"),
        ("PYCOLL_CUDAAWARE", "PYCOLL_CUDA_AWARE"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest(environment, wrong, nearest):
    environment(wrong, "1")
    assert unknown_variables() == f"the environment variable {wrong} is not known and has no effect; is it {nearest}?"


def test_variables_that_resemble_none(environment):
    environment("PYCOLL_XYZ", "1")
    environment("PYCOLL_ALLREDUCE", "ring")
    environment("PYTHONPATH", "")
    assert unknown_variables() == "the environment variable PYCOLL_XYZ is not known and has no effect"
    environment("PYCOLL_AAA", "1")
    assert unknown_variables() == (
        "the environment variable PYCOLL_AAA is not known and has no effect; "
        "the environment variable PYCOLL_XYZ is not known and has no effect"
    )


def test_known_variables_are_not_complained_about(environment):
    for name in known_variables():
        environment(name, "1")
    assert unknown_variables() == ""

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
from tests.launch import ENVIRONMENT

PACKAGE = Path(pycoll.__file__).parent


def run_with(*arguments, **variables):
    """Run Python with these environment variables."""
    variables = {**ENVIRONMENT, **variables}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYCOLL_")} | variables
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def longest_with(**variables):
    """Return the longest message within a host, in reductions there, and between hosts, and then tuned values."""
    where = "(0, 0), (0, 1), (1, 0), (1, 1)"
    program = (
        f"from pycoll.base.settings import longest; print(*(longest(*w, t) for t in (None, 1000) for w in ({where})))"
    )
    done = run_with("-c", program, **variables)
    assert done.returncode == 0, done.stderr
    return list(map(int, done.stdout.split()))


def test_the_default_asked_for_is_not_taken_for_unset():
    assert longest_with() == [4 << 20, 1 << 20, 56 << 10, 56 << 10, *[1000] * 4]
    assert longest_with(PYCOLL_SEGMENT="4194304") == [4 << 20] * 8
    assert longest_with(PYCOLL_SEGMENT="8192") == [8192] * 8
    assert longest_with(PYCOLL_SEGMENT="64K") == [64 << 10] * 8
    assert longest_with(PYCOLL_SEGMENT="") == longest_with()


def test_wrong_values():
    sizes = {
        "SEGMENT": ("0", "64X", "-1", "1.5M"),
        "PIPELINE": ("0",),
        "DEVICE_SEGMENT": ("many",),
        "DEVICE_STAGED": ("-1",),
    }
    switches = "CHECK", "NATIVE", "REGISTERED"
    wrong = [(name, value, "number of bytes, for example 65536 or 64K") for name in sizes for value in sizes[name]]
    wrong += [(name, "maybe", "is neither 0 nor 1") for name in switches]
    wrong += [("CUDA_AWARE", "maybe", "is not one of: auto, 0, 1"), ("TRACE_EVENTS", "4K", "positive number of events")]
    arguments = [word for name, value, _ in wrong for word in (f"PYCOLL_{name}", value)]
    lines = run_with(Path(__file__).parent / "programs" / "settings_with.py", *arguments).stdout.splitlines()
    for (name, value, end), line in zip(wrong, lines, strict=True):
        assert line.startswith(f"environment variable PYCOLL_{name}={value!r} is") and line.endswith(end)


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
        ("pycoll_check", "PYCOLL_CHECK"),
        ("Pycoll_Chek", "PYCOLL_CHECK"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest(environment, wrong, nearest):
    environment(wrong, "1")
    assert unknown_variables() == f"the environment variable {wrong} is not known and has no effect; is it {nearest}?"


@pytest.mark.parametrize("name", ["PYCOLL_TRACK", "PYCOLL_WORK", "PYCOLL_DEVICE", "PYCOLL_BATCH", "PYCOLL_RANK"])
def test_far_fetched_names_are_not_suggested(environment, name):
    environment(name, "1")
    assert unknown_variables() == f"the environment variable {name} is not known and has no effect"


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

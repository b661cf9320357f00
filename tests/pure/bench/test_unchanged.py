"""Times in the output of a program."""

import subprocess

import pytest

from pycoll.bench import unchanged
from pycoll.bench.unchanged import values

OSU = """# MPI Bcast Latency Test
# Size [B]        Latency [us]
         0                0.29
         1                1.54
   1048576               98.11
"""
PINGPONG = """# Size [B]  Bandwidth [MB/s] | Time Mean [s] ± StdDev [s]  Samples
       128             21.23 | 6.0302197e-06 ± 4.5934e-05    10000
"""
RING = "time for 1 loops = 0.000911701 seconds (2 processes, 1 bytes)\nHello, World! I am process 0 of 2 on vm2.\n"


def test_sizes_and_times_of_osu_demos():
    assert values(OSU, 2) == {"0": 0.29, "1": 1.54, "1048576": 98.11}


def test_times_of_pingpong_are_the_third_number():
    assert values(PINGPONG, 3) == {"128": 6.0302197e-06}


def test_lines_with_too_few_numbers_are_skipped():
    assert values(RING, 3) == {"1": 2.0}
    assert values(RING, 5) == {}
    assert values(RING, 2)["1"] == 0.000911701


def test_ratios_of_runs_that_are_disturbed(monkeypatch):
    """The medians of both ways are arbitrary; in most pairs of runs, the one under pycoll.run takes 20% longer."""
    times = {"alone": iter([1.0, 1.0, 8.0, 1.0, 8.0]), "run": iter([9.6, 1.2, 9.6, 9.6, 9.6])}

    def run(job, **options):
        spent = next(times["run" if "pycoll.run" in job else "alone"])
        return subprocess.CompletedProcess(job, 0, f"8 {spent}\n16 0.0\n")

    monkeypatch.setattr(unchanged.subprocess, "run", run)
    (record,) = unchanged.measure(["program.py"], 2, 5, 2)
    assert record == {"case": "8", "alone": 1.0, "run": 9.6, "ratio": pytest.approx(1.2)}

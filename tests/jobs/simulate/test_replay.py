"""``python -m pycoll.simulate.replay``: the collectives of a trace, simulated from where they began."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pycoll
from pycoll.simulate import Link, Network
from pycoll.simulate.network import write
from pycoll.simulate.replay import predictions
from pycoll.trace.reading import read
from tests.launch import run

PROGRAM = Path(__file__).parent / "programs/several_collectives.py"
NETWORK = Network(inside=Link(alpha=1e-3, beta=1e-8), gamma=1e-9)  # slower than any machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced")
    job = run(3, [PROGRAM], environment={"PYCOLL_TRACE": str(folder / "trace")})
    assert job.code == 0, job.output
    write(NETWORK, folder / "network.json")
    return folder


def replay(folder, *arguments):
    command = [sys.executable, "-m", "pycoll.simulate.replay", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.once
def test_the_table_and_the_picture(folder):
    code, output, error = replay(folder, "trace", "--network", "network.json", "-o", "both.svg")
    assert code == 0, error
    rows = {line.split()[0]: line.split()[1:] for line in output.splitlines() if "." in line.split()[0]}
    assert rows["allreduce.ring"][:2] == ["32768", "6"] and rows["barrier.dissemination"][:2] == ["0", "3"]
    picture = (folder / "both.svg").read_text()
    assert picture.count('class="bar predicted"') == 3 * 5 + 1 and "predicted collectives" in picture


@pytest.mark.once
def test_a_ring_takes_as_long_as_the_simulation_of_a_ring(folder):
    trace = read(folder / "trace")
    ring = [one for one in predictions(trace, NETWORK) if one.measured.name == "allreduce.ring"]
    first = min(one.measured.run for one in ring)
    ends = [one.end for one in ring if one.measured.run == first]
    starts = [one.measured.begin for one in ring if one.measured.run == first]
    expected = pycoll.simulate(
        "allreduce",
        algorithm="ring",
        ranks=3,
        nbytes=1 << 15,
        network=NETWORK,
        hosts=[0, 0, 0],
        delays={rank: (start - min(starts)) / 1e9 for rank, start in enumerate(starts)},
    )
    assert max(ends) - min(starts) == pytest.approx(
        expected.time * 1e9, rel=0.05
    )  # segments are not combined meanwhile


@pytest.mark.once
def test_errors(folder, tmp_path):
    for arguments, error in [
        ([tmp_path], "no trace was found"),
        (["trace", "--network", "nothing.json"], "nothing.json: no such file"),
        (["trace", "-o", "nowhere/x.svg"], "nowhere"),
        (["trace", "-o", "x.png"], "-o x.png does not end in .svg"),
        (["trace", "-o", "x.svg", "--from", "nan"], "--from nan must be at least 0"),
        (["trace", "--to", "5"], "--from and --to need -o FILE.svg"),
    ]:
        code, output, text = replay(folder, *arguments)
        assert code and not output and error in text and "Traceback" not in text


@pytest.mark.once
def test_a_trace_without_messages(tmp_path):
    program = "import numpy as np, pycoll; pycoll.allreduce(np.ones(4), algorithm='native')"
    assert run(2, ["-c", program], environment={"PYCOLL_TRACE": str(tmp_path / "trace")}).code == 0
    code, _, error = replay(tmp_path, "trace")
    assert code == 1 and "no collective with messages was recorded by all of its ranks" in error


def test_the_options_are_documented():
    guide = (Path(__file__).parents[3] / "docs/guide/tracing.md").read_text()
    assert re.search(r"python -m pycoll\.simulate\.replay trace --network \S+ -o \S+\.svg", guide)

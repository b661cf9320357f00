"""The command of the search."""

import json
import re

import pytest

from pycoll.prove import main as prove_command
from pycoll.schedule.registry import PRIMITIVES
from pycoll.synthesize.__main__ import main


def test_it_writes_a_schedule_that_can_be_proved(tmp_path, capsys):
    path = tmp_path / "found_torus.json"
    options = ["-t", "torus:3x2", "-b", "1M", "--chunks", "2", "--seeds", "1", "--set", "gamma=0", "-o", str(path)]
    main(["allreduce", *options])
    printed = capsys.readouterr().out
    times = [float(time.replace(",", "")) for time in re.findall(r" {2}([\d,]+\.\d) ", printed)]
    assert printed.startswith("allreduce of 1 MiB on 6 ranks of torus:3x2, simulated:")
    assert len(times) == 3 and times[2] == min(times) and f"written to {path}" in printed
    assert json.loads(path.read_text())["parts"] == 12
    try:
        assert prove_command(["--file", str(path)]) == 0
    finally:
        del PRIMITIVES["allreduce"].algorithms["found_torus"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["scan", "-t", "torus:4"], "primitive='scan' is not one of"),
        (["allreduce"], "the following arguments are required: -t/--topology"),
        (["allreduce", "-t", "torus:4x"], "topology='torus:4x' is not one of"),
        (["allreduce", "-t", "absent.json"], "absent.json: no such file"),
        (["allreduce", "-t", "torus:4", "-o", "found.txt"], "-o found.txt is not the name of an algorithm with .json"),
        (["allreduce", "-t", "torus:4", "-o", "4.json"], "-o 4.json is not the name"),
        (["allreduce", "-t", "torus:4", "-o", "no/where.json"], "-o no/where.json: no such directory"),
        (["allreduce", "-t", "torus:4", "--set", "beta=1"], "'beta' is not one of"),
        (["bcast", "-t", "torus:4", "-r", "4"], "root=4 is not one of 4 ranks"),
        (["allreduce", "-t", "torus:4", "--set", "hosts_per_switch=2", "--seeds", "1"], "replaces hosts_per_switch=2"),
    ],
)
def test_wrong_options(arguments, why, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert why in capsys.readouterr().err

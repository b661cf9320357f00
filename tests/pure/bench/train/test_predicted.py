"""Predicted steps beside those that were measured on a network of four hosts."""

import re
from pathlib import Path

import pytest

from pycoll.bench.train.predicted import main

RESULTS = Path(__file__).parents[4] / "bench/results"


@pytest.mark.parametrize(
    "network, records, steps",
    [
        *((f"predicted/{mpi}-cubic.json", f"train/*-{mpi}-4.json", 7) for mpi in ("mpich", "openmpi")),
        *((f"train/steps-{mpi}-4/network.json", f"train/steps-{mpi}-4/*-*.json", 26) for mpi in ("mpich", "openmpi")),
    ],
)
def test_predictions_are_within_a_tenth_of_recorded_steps(network, records, steps, capsys):
    files = [str(file) for file in RESULTS.glob(records) if file.name.startswith(("overlap", "bubble"))]
    main(["--network", str(RESULTS / network), *files])
    printed = capsys.readouterr().out
    assert float(re.search(r"error: median (.*?)%", printed)[1]) < 10
    assert sum(line.startswith(("overlap-", "bubble-")) for line in printed.splitlines()) == steps


@pytest.mark.parametrize("text, message", [("[]", "is not a record"), ("{}", "is not a record"), ("{", "Expecting")])
def test_other_files_are_errors(tmp_path, text, message, capsys):
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(SystemExit):
        main(["--network", str(RESULTS / "predicted/mpich-cubic.json"), str(tmp_path / "record.json")])
    assert message in capsys.readouterr().err

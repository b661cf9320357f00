"""Wrong options of one program, in one job: starting a job for each takes longer than the tests themselves."""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.launch import run

PROGRAMS = Path(__file__).parent / "programs"


def refusals(ranks: int, name: str, cases: Sequence[list[str]]) -> list[str]:
    """Run a module with each list of options, check that it refuses them, and return what it prints for each."""
    job = run(ranks, [PROGRAMS / "several_runs.py", json.dumps([name, list(cases)])])
    assert job.code == 0 and "Traceback" not in job.output, job.output
    *outputs, rest = job.output.split("\n=== ")
    texts = [outputs[0], *(text.partition("\n")[2] for text in outputs[1:])]
    codes = [text.partition("\n")[0] for text in [*outputs[1:], rest]]
    assert len(texts) == len(cases) and not {"0", "None"} & {*codes}, job.output
    return [" ".join(text.split()) for text in texts]

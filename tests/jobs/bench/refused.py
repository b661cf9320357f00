"""Wrong options of one program, in one job: starting a job for each takes longer than the tests themselves."""

import json
from collections.abc import Sequence

from tests.launch import run

PROGRAM = """
import json, runpy, sys
from mpi4py import MPI

sys.stderr = sys.stdout  # so that the order is kept
name, cases = json.loads(sys.argv[1])
for options in cases:
    sys.argv[1:] = options
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    if MPI.COMM_WORLD.rank == 0:
        print(f"\\n=== {code}", flush=True)
"""


def refusals(ranks: int, name: str, cases: Sequence[list[str]]) -> list[str]:
    """Run a module with each list of options, check that it refuses them, and return what it prints for each."""
    job = run(ranks, ["-c", PROGRAM, json.dumps([name, list(cases)])])
    assert job.code == 0 and "Traceback" not in job.output, job.output
    *outputs, rest = job.output.split("\n=== ")
    texts = [outputs[0], *(text.partition("\n")[2] for text in outputs[1:])]
    codes = [text.partition("\n")[0] for text in [*outputs[1:], rest]]
    assert len(texts) == len(cases) and not {"0", "None"} & {*codes}, job.output
    return [" ".join(text.split()) for text in texts]

"""The programs in examples/."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from pycoll import core
from tests.launch import STAND_IN, run
from tests.quick import once

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
REGISTERED = "ordinary memory here" if core.problem else "used directly"
LIMIT = 120.0  # seconds; a program takes one or two

# the number of ranks, and a regular expression for a line that rank 0 prints
EXAMPLES = {
    "algorithms": (2, r"allreduce recursive_doubling +a rank sends at most 1 message, 800000 bytes"),
    "buffers": (2, r"two arrays in 1 message of rank 0, 160 bytes"),
    "checks": (2, r"CollectiveTimeout: barrier by .* it is waiting for rank 1"),
    "compare_with_mpi": (2, r"scan \(us\): mpi \d+, naive \d+, tree \d+, ring \d+"),
    "ddp": (2, r"loss 0\.\d+ -> 0\.\d+; difference from one process \S+"),
    "drop_in": (2, r"largest eigenvalue .*; rank 0 sent 200 messages"),
    "exact_sum": (2, r"2 sources in two orders: \d+ of 1000 plain sums differ, and no exact sum"),
    "elastic": (2, r"weight \[1\. 2\. 3\.\] on 2 ranks"),
    "fsdp": (2, r"loss .*; rank 0 keeps 2112 of 4224 parameters"),
    "gpt": (2, r"step 100: loss 2\.\d+"),
    "gpu": (2, r"skipped: .*|averaged on GPU \d+, .*: 0\.5"),
    "halo": (2, r"3 dimensions, with borders: 5 steps on 2 ranks, largest difference 0\.0"),
    "naive_ddp": (2, r"weights \[.*\]; largest difference from one process \S+"),
    "overlap": (2, r"all-reduces in flight after computing each of 8 blocks: 0(, \d)+"),
    "own_algorithm": (2, r"chain is proved for up to 12 ranks, and correct on 2"),
    "parameter_server": (2, r"bounded: error \S+, at most \d of 3 steps behind"),
    "registered": (2, rf"registered buffers are {REGISTERED}\nordinary  : +\S+ us\nregistered: +\S+ us"),
    "persistent": (2, r"200 steps on 2 ranks, 400 equations: largest error \S+"),
    "simulation": (1, r"fastest: recursive_doubling, .*"),
    "synthesis": (1, r"found .* us; .* the fastest of the catalogue, .* us: \d\.\d times as fast"),
    "training_step": (1, r"\{'dp': 4, 'pp': 4\}: 1\.845 s for 16 samples, 5% of the peak"),
    "tracing": (2, r"20 calls of allreduce\.ring with 400000 bytes, .*"),
    "torch_ddp": (2, r"loss 0\.\d+ -> 0\.\d+; difference from one process \S+"),
    "torch_fsdp": (2, r"loss .*; rank 0 keeps 2640 of 5280 parameters"),
    "torch_tensor_parallel": (2, r"rank 0 keeps 768 of 1536 elements; largest difference of a gradient \S+"),
    "user_defined": (2, r"refused: algorithm='ring' does not keep rank order.*"),
    "varying": (2, r"21000 numbers are sorted; lengths of the buckets: \d+, \d+"),
}


def output(name, ranks, *folders, **settings):
    if name.startswith("torch_") and not find_spec("torch"):
        pytest.skip("torch is not installed")
    path = os.pathsep.join(filter(None, [*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH")]))
    program = FOLDER / name if (FOLDER / name).is_dir() else FOLDER / f"{name}.py"
    job = run(ranks, [str(program)], LIMIT, environment={"PYTHONPATH": path, **settings})
    assert job.code == 0 and not job.timed_out and job.left == [], job.output
    return job.output


BOTH = "compare_with_mpi", "drop_in", "exact_sum", "fsdp", "halo", "overlap", "registered", "varying"  # libraries


@pytest.mark.parametrize("name", [name if name in BOTH else once(name) for name in EXAMPLES])
def test_examples(name):
    ranks, line = EXAMPLES[name]
    printed = output(name, ranks)
    assert len(re.findall(f"^(?:{line})$", printed, re.MULTILINE)) == 1, printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(name for name in EXAMPLES if name not in ("simulation", "synthesis") and "torch" not in name)
)
def test_examples_on_three_ranks(name):
    """Run the programs on three ranks; they check their own results.  Those with torch take long to start."""
    assert output(name, 3).strip()


@pytest.mark.parametrize("aware, path", [("0", "staged through host memory"), ("1", "direct")])
def test_the_gpu_example_on_the_stand_in(aware, path):
    printed = output("gpu", 2, STAND_IN, PYCOLL_CUDA_AWARE=aware)
    assert printed.count(f"averaged on GPU 0, {path}: 0.5\n") == 1, printed


def test_all_examples_are_here_and_in_the_table():
    found = {path.stem for path in FOLDER.glob("*.py")} | {path.parent.name for path in FOLDER.glob("*/__main__.py")}
    assert found == EXAMPLES.keys()
    rows = re.findall(r"^\| \[(\w+)(\.py|/)\]\(\1\2\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == found

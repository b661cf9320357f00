"""The benchmark, run from the command line."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pycoll.schedule.registry import algorithms_of
from pycoll.tune.benchmark_case import FORMS, IN_PLACE, MEASURED
from tests.launch import STAND_IN, run

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.once  # the MPI library matters little here


def bench(tmp_path, *options, ranks=2):
    """Run the benchmark and return its JSON document and its output."""
    path = tmp_path / "results.json"
    job = run(ranks, ["-m", "pycoll.bench", *options, "--json", str(path)])
    assert job.code == 0, job.output
    assert not list(tmp_path.glob("*.tmp"))
    return json.loads(path.read_text()), job.output


@pytest.mark.slow
def test_everything(tmp_path):
    options = ["-b", "8", "-e", "4K", "-f", "512", "--inplace", "-n", "5", "--csv", str(tmp_path / "results.csv")]
    document, output = bench(tmp_path, *options, ranks=3)
    assert document["environment"]["ranks"] == 3 and document["environment"]["hosts"]
    records = document["records"]
    expected = {(name, a, "out") for name in MEASURED for a in [*algorithms_of(name), "mpi"]}
    expected |= {(name, a, "in") for name in IN_PLACE for a in [*algorithms_of(name), "mpi"]}
    assert {(record["primitive"], record["algorithm"], record["place"]) for record in records} == expected
    for record in records:
        assert record["wrong"] == (None if record["algorithm"] == "mpi" else 0)
        assert 0 < record["min"] <= record["median"] <= record["p99"] and record["iterations"] == 5
        assert record["ratio"] > 0 and (record["algorithm"] != "mpi" or record["ratio"] == 1)
        assert record["algbw"] == pytest.approx(record["bytes"] / record["median"] / 1e3)
        factor = {"allreduce": 4 / 3, "bcast": 1, "reduce": 1, "scan": 1, "exscan": 1}.get(record["primitive"], 2 / 3)
        assert record["busbw"] == pytest.approx(record["algbw"] * factor)
    with open(tmp_path / "results.csv") as file:
        assert [row["algorithm"] for row in csv.DictReader(file)] == [record["algorithm"] for record in records]
    lines = output.splitlines()
    assert sum(line.split()[:1] == ["4092"] for line in lines) > 20 and "# No wrong results" in lines
    fastest = lines[lines.index("# Fastest algorithms (within 5%)") + 1 :]
    for name in MEASURED:
        assert any(re.match(rf"{name}\b.* [\d.]+( to [\d.]+)?$", line) for line in fastest), name


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path, form):
    options = [] if form == "blocking" else [f"--{form}"]
    document, _ = bench(tmp_path, "allreduce", "-a", "ring,auto", "-b", "64K", "-e", "64K", "--budget", "1", *options)
    assert {record["algorithm"]: record["form"] for record in document["records"]} == dict.fromkeys(
        ("ring", "auto", "mpi"), form
    )
    for record in document["records"]:
        assert (record["overlap"] is not None) == (form == "nonblocking")
        assert record["overlap"] is None or 0 <= record["overlap"] <= 100


def test_options(tmp_path):
    options = ["reduce", "bcast", "-a", "native,best", "-b", "64", "-e", "192", "-i", "64", "-d", "float64", "-r", "1"]
    document, _ = bench(tmp_path, *options, "-o", "max", "-c", "0", "-w", "2", "-n", "3")
    per_size = {(record["primitive"], record["bytes"]): [] for record in document["records"]}
    for record in document["records"]:
        per_size[record["primitive"], record["bytes"]].append(record["algorithm"])
    # the best may be the native MPI collective, called through pycoll
    assert all(len(names) in (2, 3) and {"mpi", "native"} <= set(names) for names in per_size.values()), per_size
    kinds = {tuple(record[key] for key in ("datatype", "op", "root", "wrong")) for record in document["records"]}
    assert kinds == {("float64", "max", 1, None), ("float64", None, 1, None)}
    assert sorted({record["bytes"] for record in document["records"]}) == [64, 128, 192]
    assert all(record["count"] * 8 == record["bytes"] for record in document["records"])


@pytest.mark.slow
def test_the_best_alone_is_shown(tmp_path):
    document, _ = bench(tmp_path, "allgather", "-a", "best", "-e", "64", "-f", "8", "-n", "5")
    assert len(document["records"]) == 4  # two sizes, each with the native MPI collective and the best algorithm


@pytest.mark.parametrize(
    "dtype, op",
    [
        ("bfloat16", "avg"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in [("float16", "prod"), ("int8", "sum"), ("complex64", "prod")]
        ),
    ],
)
def test_validate_only(tmp_path, dtype, op):
    options = ["allreduce", "reduce_scatter", "alltoall", "--validate-only", "-d", dtype, "-o", op, "-e", "1K"]
    document, output = bench(tmp_path, *options, "-f", "16", "--inplace", ranks=3)
    assert document["records"] and all(record["wrong"] == 0 for record in document["records"])
    assert all(record["median"] is None for record in document["records"]) and "Fastest algorithms" not in output


PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize("algorithm", ["ring", "best"])
def test_wrong_results_are_seen(algorithm):
    """If the ring returns a wrong element, the benchmark reports it and fails, even though the ring is not the best."""
    job = run(2, [PROGRAMS / "wrong_ring.py", algorithm])
    assert job.code != 0 and "# 2 wrong" in job.output, job.output


def test_nothing_compared_is_not_nothing_wrong(tmp_path):
    _, output = bench(tmp_path, "barrier", "-c", "0", "-n", "3")
    assert "# No results were compared" in output and "wrong results" not in output


@pytest.mark.slow
def test_plot_and_report(tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    bench(tmp_path, "bcast", "-e", "1K", "-f", "16", "-n", "3", "--plot", str(plot))
    assert plot.read_bytes().startswith(b"\x89PNG")
    command = [
        sys.executable,
        "-m",
        "pycoll.bench.report",
        str(tmp_path / "results.json"),
        "-o",
        str(tmp_path / "report"),
    ]
    subprocess.run(command, check=True, timeout=240)
    assert "scatter_allgather" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["allredcue"],
        ["--minbytes", "8Q"],
        ["-b", "64", "-e", "8"],
        ["--datatype", "bool"],
        ["--datatype", "float31"],
        ["--algorithm", "fastest"],
        ["--root", "1"],
        ["--iters", "0"],
        ["-o", "avg", "-d", "int32"],
        ["--nonblocking", "--persistent"],
        ["scan", "-o", "avg"],
        ["--json", "nowhere/results.json"],
        ["--plot", "results.foo"],
    ],
)
def test_nonsense_is_refused(options):
    result = subprocess.run(
        [sys.executable, "-m", "pycoll.bench", *options], capture_output=True, text=True, timeout=240
    )
    assert result.returncode == 2 and options[-1].strip("-") in result.stderr
    assert result.stderr.startswith("python -m pycoll.bench: ") and result.stderr.count("\n") == 1


def test_one_rank_alone_says_what_is_wrong():
    job = run(2, ["-m", "pycoll.bench", "--algorithm", "fastest"])
    assert job.code != 0 and job.output.count("python -m pycoll.bench: --algorithm 'fastest' is not one of") == 1, (
        job.output
    )
    assert "usage:" not in job.output


def test_own_algorithms(tmp_path):
    own = PROGRAMS / "barrier.py"
    document, output = bench(tmp_path, "--file", str(own), "-a", "star,tree", "-n", "2")
    assert [record["algorithm"] for record in document["records"]] == ["mpi", "tree", "star"]
    assert "one rank" not in output and f"\nwritten to {tmp_path / 'results.json'}\n" in output
    wrong = tmp_path / "barrier.py"
    wrong.write_text(own.read_text().replace("Send(0", "Send(1"))
    job = run(2, ["-m", "pycoll.bench", "--file", str(wrong), "-n", "2"])
    assert job.code != 0 and "# " not in job.output
    assert job.output.startswith("python -m pycoll.bench: barrier.star on 2 ranks: ")


def test_one_rank():
    job = run(1, ["-m", "pycoll.bench", "barrier", "-a", "tree", "-n", "2"])
    assert job.code == 0 and "# Warning: one rank sends no messages; " in job.output


@pytest.mark.parametrize("command", ["pycoll.bench.selection", "pycoll.bench.train", "pycoll.bench.train.overlap"])
def test_usage_errors_are_one_line(command):
    done = subprocess.run([sys.executable, "-m", command, "--budgte"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert done.stderr == f"python -m {command}: unrecognized arguments: --budgte\n"


@pytest.mark.slow
def test_bench_on_a_gpu(tmp_path):
    """Check records and results with the stand-in for CuPy; its times are meaningless."""
    path = tmp_path / "results.json"
    options = ["--device", "cuda", "-a", "auto", "-b", "4K", "-e", "4K", "--budget", "2", "--json", str(path)]
    environment = {"PYCOLL_CUDA_AWARE": "1", "PYTHONPATH": f"{STAND_IN}:."}
    job = run(2, ["-m", "pycoll.bench", *options], environment=environment)
    assert job.code == 0, job.output
    document = json.loads(path.read_text())
    assert document["environment"]["path"] == "direct" and "stand-in" in document["environment"]["gpu"]
    assert {record["algorithm"] for record in document["records"]} == {"auto", "staged"}
    for record in document["records"]:
        assert record["native"] is None, "the library does not say that its collectives can do it"
        assert record["median"] > 0
        if record["algorithm"] == "auto":
            assert record["wrong"] == 0
            assert record["copied"] == 0, "nothing goes by the host on the direct path"
            assert record["primitive"] == "barrier" or record["staged"] > 0
    job = run(1, ["-m", "pycoll.bench.gpu_copies", str(path)], environment=environment)
    assert job.code == 0 and "the GPU copies 268435456 bytes at" in job.output, job.output


def test_bench_without_a_gpu(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('there is none')")
    job = run(2, ["-m", "pycoll.bench", "--device", "cuda"], environment={"PYTHONPATH": f"{tmp_path}:."})
    assert job.code != 0 and "--device cuda: select_device needs the package CuPy" in job.output
    assert "Traceback" not in job.output


def test_info():
    job = run(2, ["-m", "pycoll.info"])
    assert job.code == 0, job.output
    for line in ("pycoll: ", "MPI library: ", "thread level: ", "ranks: 2", "CUDA-aware: ", "transports: ", "GPU: "):
        assert sum(found.startswith(line) for found in job.output.splitlines()) == 1, job.output
    assert re.search("^CUDA-aware: (yes|no): .", job.output, re.MULTILINE), job.output

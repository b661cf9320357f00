"""Rules are exported from the command line, read by the MPI library, and compared by the benchmark."""

import json
import shlex
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"
OPTIONS = ["allreduce", "bcast", "-e", "4K", "-f", "64", "--budget", "2"]


@pytest.fixture(scope="module")
def this():
    """Return the name of the MPI library in the option --export."""
    job = run(1, ["-c", "from mpi4py import MPI; print(MPI.Get_library_version())"])
    return "mpich" if "MPICH" in job.output else "ompi"


def settings(folder):
    """Return the variables that settings.sh exports."""
    lines = [shlex.split(line) for line in (folder / "settings.sh").read_text().splitlines()]
    assert all(len(words) == 2 and words[0] == "export" for words in lines)
    return dict(words[1].split("=", 1) for words in lines)


def test_what_is_written(this, tmp_path):
    folder = tmp_path / "new" / "the rules"
    job = run(2, ["-m", "pycoll.tune", "--export", this, *OPTIONS, "-o", folder])
    assert job.code == 0, job.output
    if "no rules: no algorithm is clearly faster" in job.output:
        assert [path.name for path in folder.iterdir()] == ["measurements.json"]
        return
    assert f"to use the rules: . '{folder}/settings.sh'" in job.output
    (one,) = json.loads((folder / "measurements.json").read_text())["measurements"]
    assert one["ranks"] == 2 and set(one["primitives"]) == {"allreduce", "bcast"}
    rules = [point for points in one["primitives"].values() for point in points if point["selected"]]
    assert rules and all(f"{point['gain']:.2f} times as fast" in job.output for point in rules)
    variables = settings(folder)
    assert variables and run(2, [PROGRAMS / "plain.py", "64"], environment=variables).code == 0


def test_the_library_reads_the_rules(this, tmp_path):
    wrong = {"mpich": ("allgather", "recursive_doubling"), "ompi": ("alltoall", "two_proc")}[this]
    job = run(1, [PROGRAMS / "forged.py", tmp_path, this, "3", *wrong])
    assert job.code == 0, job.output
    variables = settings(tmp_path)
    for ranks, nbytes in [(2, 64), (3, 4096), (4, 64)]:
        job = run(ranks, [PROGRAMS / "plain.py", str(nbytes)], environment=variables)
        assert job.code == 0 and job.output.count("all is right") == ranks, job.output
    job = run(3, [PROGRAMS / "plain.py", "64"], environment=variables, limit=20)
    assert job.code != 0 and job.output.count("all is right") < 3, job.output


@pytest.mark.parametrize("primitive", quick("allreduce", "bcast", "reduce", "allgather", "alltoall", "reduce_scatter"))
def test_the_library_knows_all_names(this, tmp_path, primitive):
    """MPICH ends at MPI_Init if it does not know one; those for the sizes of the calls run."""
    job = run(1, [PROGRAMS / "forged.py", tmp_path, this, "2", primitive, "all"])
    assert job.code == 0, job.output
    for nbytes in (64, 4096, 20480):
        job = run(2, [PROGRAMS / "plain.py", str(nbytes)], environment=settings(tmp_path))
        assert job.code == 0 and job.output.count("all is right") == 2, job.output


def test_mpich_reads_parameters(this, tmp_path):
    """It checks that k is more than 1 in these algorithms."""
    if this != "mpich":
        pytest.skip("Open MPI has no files with parameters by name")
    for number, name in enumerate(["k_reduce_scatter_allgather:k={}", "tree:k={},chunk_size=0"]):
        for k in (2, 1):
            folder = tmp_path / f"{number}-{k}"
            folder.mkdir()
            job = run(1, [PROGRAMS / "forged.py", folder, this, "2", "allreduce", name.format(k)])
            assert job.code == 0, job.output
            job = run(2, [PROGRAMS / "plain.py", "64"], environment=settings(folder), limit=20)
            assert (job.code == 0) == (k > 1), job.output


def test_threads_can_call_mpi_afterwards():
    """In Open MPI, the tools interface changes the thread level of the process if it is asked for a lower one."""
    job = run(2, [PROGRAMS / "threads.py"], limit=20)
    assert job.code == 0 and job.output.count("all is right") == 2, job.output


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (["--export", "OTHER"], {}, "--export OTHER: the MPI library is "),
        (["--export", "THIS", "--no-native"], {}, "--no-native has no meaning with --export"),
        (["scan", "--export", "THIS"], {}, "--export THIS: the files cannot select an algorithm for scan by its size"),
        (
            ["gather", "--export", "THIS"],
            {},
            "--export THIS: the files cannot select an algorithm for gather by its size",
        ),
        (["--export", "THIS"], {"MPIR_CVAR_BCAST_INTRA_ALGORITHM": "tree"}, "unset MPIR_CVAR_BCAST_INTRA_ALGORITHM, "),
        (["--export", "THIS"], {"OMPI_MCA_coll_tuned_x": "1"}, "unset OMPI_MCA_coll_tuned_x, which select algorithms"),
    ],
)
def test_what_cannot_be_exported(this, tmp_path, options, environment, message):
    names = {"THIS": this, "OTHER": "ompi" if this == "mpich" else "mpich"}
    options = [names.get(word, word) for word in options]
    for word, name in names.items():
        message = message.replace(word, name)
    job = run(2, ["-m", "pycoll.tune", *options, "-o", tmp_path], environment=environment)
    assert job.code not in (0, None) and not job.timed_out and message in job.output, job.output
    assert job.output.count(message) == 1 and not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made(this, tmp_path):
    (tmp_path / "file").touch()
    job = run(2, ["-m", "pycoll.tune", "--export", this, "-o", tmp_path / "file" / "rules"])
    assert job.code == 1 and f"-o {tmp_path}/file/rules: " in job.output, job.output


def test_the_measurements_of_something_else_are_kept(this, tmp_path):
    (tmp_path / "measurements.json").write_text("[]")
    job = run(2, ["-m", "pycoll.tune", "--export", this, *OPTIONS, "-o", tmp_path])
    assert job.code == 1 and "name another directory" in job.output, job.output
    assert [path.name for path in tmp_path.iterdir()] == ["measurements.json"]


def test_runs_are_compared(tmp_path):
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path in [*paths, paths[1]]:
        job = run(2, ["-m", "pycoll.bench.exported", "bcast", "-e", "64", "-f", "8", "--budget", "1", "-o", path])
        assert job.code == 0 and f"written to {path}" in job.output, job.output
    assert len(json.loads(paths[1].read_text())) == 2, "a run is added"
    job = run(1, ["-m", "pycoll.bench.exported", "--compare", *paths])
    assert job.code == 0 and "before / after" in job.output and job.output.count("bcast ") == 2, job.output
    for text in ("{}", '{"mpi": "MPICH"}', "[1]", "no JSON"):
        paths[0].write_text(text)
        job = run(1, ["-m", "pycoll.bench.exported", "bcast", "-e", "8", "-o", paths[0]])
        assert job.code == 2 and f"{paths[0]} was not written by" in job.output and paths[0].read_text() == text
    job = run(1, ["-m", "pycoll.bench.exported", "--compare", *paths])
    assert job.code == 2 and "before.json was not written by python -m pycoll.bench.exported" in job.output

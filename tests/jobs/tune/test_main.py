"""Tuning from the command line, and the use of the tuning files."""

import json
import re
import shlex
from pathlib import Path

import pytest

from pycoll import core
from pycoll.schedule.registry import algorithms_of
from tests.launch import run

SHARED = set() if core.problem else {"shared_memory"}
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Measure two primitives on two ranks and return the path of the tuning file."""
    path = tmp_path_factory.mktemp("tuning") / "of two" / "tuning.json"
    options = ["allreduce", "barrier", "-b", "8", "-e", "1M", "-f", "64", "--budget", "3", "-o", str(path)]
    job = run(2, ["-m", "pycoll.tune", *options])
    assert job.code == 0 and f"export PYCOLL_TUNING={shlex.quote(str(path))}\n" in job.output, job.output
    return path


def explained(path, *options, ranks=2, nbytes=8, **environment):
    job = run(
        ranks,
        [PROGRAMS / "explanations.py", str(nbytes), *options],
        environment={"PYCOLL_SHARED_MEMORY": "0", "PYCOLL_TUNING": str(path), **environment},
    )
    assert job.code == 0, job.output
    lines = [line for line in job.output.splitlines() if line.startswith("rank ")]
    assert len(lines) == ranks, job.output
    return lines


def test_what_is_written(tuned):
    document = json.loads(tuned.read_text())
    (one,) = document["measurements"]
    assert one["ranks"] == 2 and one["hosts"] == 1 and one["mpi"] == one["environment"]["mpi"]
    assert one["environment"]["date"] and one["environment"]["cpu"] and one["environment"]["hosts"]
    points = one["primitives"]["allreduce"]
    assert [point["nbytes"] for point in points] == [8, 512, 32768]
    for point in points:
        names = {name for name in point["seconds"] if "/" not in name}
        assert names == {*algorithms_of("allreduce"), "native", *SHARED}
        assert all(seconds > 0 for seconds in [*point["seconds"].values(), point["registered"]])
    names = set(one["primitives"]["barrier"][0]["seconds"])
    assert names == {*algorithms_of("barrier"), "native", *SHARED}


@pytest.mark.slow
def test_the_limit_of_registered_buffers_is_used_and_said_to_be(tuned, tmp_path):
    """Check that a file in which registered buffers are always faster excludes native."""
    document = json.loads(tuned.read_text())
    points = document["measurements"][0]["primitives"]["allreduce"]
    for point in points:
        point["seconds"]["native"], point["registered"] = 1e-7, 1e-8
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(document))
    for line in explained(path, "--allocate", nbytes=8):
        assert (
            " native " not in line.partition("without native; registered buffers were measured to be faster from 8")[0]
        )
        assert "without native" in line
    for line in explained(path, nbytes=8):
        assert " native measured to be the fastest" in line


def test_it_is_used_and_said_to_be(tuned):
    seconds = json.loads(tuned.read_text())["measurements"][0]["primitives"]["allreduce"][0]["seconds"]
    best = min(seconds.keys() - SHARED, key=seconds.get)  # `explained` turns shared memory off
    reason = "measured to be the fastest"
    if seconds["recursive_doubling"] <= 1.05 * seconds[best]:  # the algorithm that the rules choose
        best, reason = "recursive_doubling", "by the rules, and measured to be as good as the fastest"
    for line in explained(tuned):
        assert f" {best} {reason} {tuned}, measured 20" in line and line.endswith("[]")


@pytest.mark.slow
def test_ranks_that_were_not_measured_go_by_the_rules(tuned):
    for line in explained(tuned, ranks=3):
        assert "recursive_doubling by the rules" in line and "has no measurement of 3 ranks on 1 host" in line


@pytest.mark.slow
def test_another_number_of_ranks_is_added(tuned, tmp_path):
    path = tmp_path / "tuning.json"
    path.write_bytes(tuned.read_bytes())
    options = ["barrier", "--budget", "1", "-o", str(path)]
    job = run(3, ["-m", "pycoll.tune", *options])
    assert job.code == 0, job.output
    assert [one["ranks"] for one in json.loads(path.read_text())["measurements"]] == [2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda text: text[:-20], "not JSON"),
        (lambda text: text.replace('"mpi": "', '"mpi": "Other '), "it was measured with Other .*; this is"),
        (lambda text: text.replace("pycoll tuning", "else"), "not a tuning file"),
    ],
)
def test_refused_files_are_warned_of_once(tuned, tmp_path, change, reason):
    path = tmp_path / "tuning.json"
    path.write_text(change(tuned.read_text()))
    first, second = explained(path)
    assert re.search(rf"by the rules.* none .*the tuning file {path} is not used: .*{reason}", first), first
    assert "by the rules" in second and second.endswith("none []")


@pytest.mark.slow
def test_ranks_with_different_files_use_none(tuned, tmp_path):
    path = tmp_path / "tuning.json"
    path.write_text(tuned.read_text() + "\n")
    first, second = explained(tuned, "--tuning", str(path))
    assert "by the rules" in first and "the ranks have different tuning files" in first
    assert "by the rules" in second


@pytest.mark.slow
def test_a_file_of_something_else_is_not_overwritten(tmp_path):
    path = tmp_path / "precious.json"
    path.write_text('{"answer": 42}')
    job = run(2, ["-m", "pycoll.tune", "barrier", "-o", str(path)])
    assert job.code != 0 and "not a tuning file" in job.output and "Traceback" not in job.output
    assert path.read_text() == '{"answer": 42}'


def test_one_rank_is_refused(tmp_path):
    path = tmp_path / "tuning.json"
    job = run(1, ["-m", "pycoll.tune", "barrier", "-o", str(path)])
    why = "python -m pycoll.tune: one rank sends no messages; start several ranks: mpiexec -n 4 python -m pycoll.tune\n"
    assert job.code == 2 and job.output == why and not path.exists()


@pytest.mark.slow
def test_usage_errors_are_one_line():
    job = run(2, ["-m", "pycoll.tune", "allredcue"])
    assert job.code != 0 and "usage:" not in job.output
    assert job.output.count("python -m pycoll.tune: argument primitive: 'allredcue' is not one of: ") == 1, job.output


@pytest.mark.slow
def test_settings_that_would_spoil_the_measurement_are_refused(tmp_path):
    options = ["allreduce", "--budget", "1", "-o", str(tmp_path / "tuning.json")]
    environment = {"PYCOLL_ALLREDUCE": "naive", "PYCOLL_SEGMENT": "1024", "PYCOLL_BCAST": "tree"}
    job = run(2, ["-m", "pycoll.tune", *options], environment=environment)
    assert job.code != 0 and "unset PYCOLL_ALLREDUCE=naive, PYCOLL_SEGMENT=1024 to tune" in job.output, job.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_without_mpis_own_and_registered_buffers(tmp_path):
    path = tmp_path / "tuning.json"
    options = ["bcast", "-e", "8", "--no-native", "--no-registered", "--budget", "1", "-o", str(path)]
    job = run(2, ["-m", "pycoll.tune", *options])
    assert job.code == 0 and "registered" not in job.output, job.output
    (point,) = json.loads(path.read_text())["measurements"][0]["primitives"]["bcast"]
    assert set(point) == {"nbytes", "seconds"}
    assert set(point["seconds"]) == {*algorithms_of("bcast"), *SHARED}


@pytest.mark.slow
def test_a_warning_that_is_an_error_ends_the_job(tmp_path):
    (tmp_path / "tuning.json").write_text("{")
    program = "import warnings, pycoll; warnings.simplefilter('error'); pycoll.abort_on_exception(); pycoll.attach()"
    job = run(2, ["-c", program], environment={"PYCOLL_TUNING": str(tmp_path / "tuning.json")})
    assert job.code != 0 and not job.timed_out and "is not used: it is not JSON" in job.output


@pytest.mark.slow
def test_the_choice_is_compared_with_the_best(tuned, tmp_path):
    path = tmp_path / "selection.json"
    options = ["allreduce", "-e", "4K", "-f", "64", "--budget", "2", "--json", str(path)]
    job = run(2, ["-m", "pycoll.bench.selection", *options], environment={"PYCOLL_TUNING": str(tuned)})
    assert job.code == 0 and "within 10% of the best" in job.output, job.output
    for record in json.loads(path.read_text())["records"]:
        names = {name.partition("/")[0] for name in record["all"]}
        assert names - SHARED == {*algorithms_of("allreduce"), "native"}
        assert record["ratio"] == pytest.approx(record["time"] / record["least"])

"""Unmodified mpi4py programs under ``python -m pycoll.run``."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAMS = Path(__file__).parent / "programs"
COLLECTIVES = PROGRAMS / "collectives.py"


def runs(ranks, *arguments, code=0):
    job = run(ranks, ["-m", "pycoll.run", *map(str, arguments)])
    assert not job.timed_out and job.left == []
    assert (job.code == 0) == (code == 0), job.output
    return job.output


@pytest.mark.parametrize("ranks", quick(3, 1))
def test_a_program(ranks):
    output = runs(ranks, COLLECTIVES, "--first", "-m", "two words")
    assert "__main__ pycoll.api.comm Comm Comm Cartcomm" in output
    assert "['--first', '-m', 'two words'] True" in output


def test_the_constants_are_what_mpi4py_makes_them():
    path = PROGRAMS / "constants.py"
    plain = run(2, [path])
    assert plain.code == 0 and "is itself: True False" in plain.output
    assert runs(2, path).splitlines() == plain.output.splitlines()


@pytest.mark.parametrize(
    "options", [["initialize=False", "finalize=False"], ["thread_level=serialized", "errors=fatal"]], ids=" ".join
)
def test_the_options_of_mpi4py(options):
    path = PROGRAMS / "rc_options.py"
    plain = run(2, [path, *options])
    assert plain.output.count("sum 2.0") == 4
    output = runs(2, path, *options)
    assert sorted(output.splitlines()) == sorted(plain.output.splitlines())


@pytest.mark.parametrize("first", ["abort_on_exception", "attach", "parallel.SGD"])
def test_a_program_that_uses_pycoll_before_it_imports_mpi(first):
    assert "sum 1" in runs(1, PROGRAMS / "using_pycoll_first.py", first)


def test_few_modules_are_imported_at_the_start(monkeypatch):
    monkeypatch.delenv("PYCOLL_NATIVE", raising=False)
    path = PROGRAMS / "loaded_modules.py"
    plain, ours = (set(output.split()) for output in (run(1, [str(path)]).output, runs(1, path)))
    more = sorted(ours - plain)
    assert len(more) <= 132, more


@pytest.mark.parametrize("arguments", [[], ["import"]])
def test_an_exception_outside_of_the_time_in_which_mpi_is_initialized(arguments):
    path = PROGRAMS / "failing_without_mpi.py"
    output = runs(1, path, *arguments, code=1)
    assert "RuntimeError: not in a job" in output and f'File "{path}", line' in output
    assert "MPI is imported" not in output and "ends the job" not in output


def test_a_first_nonblocking_call_with_gaps_on_comm_self():
    assert "[0, 0, 2, 0, 4, 0]" in runs(1, PROGRAMS / "gaps.py")


@pytest.mark.parametrize("native", ["", "0"])
def test_class_methods_of_mpi_accept_requests_of_both_kinds(native, monkeypatch):
    """With short calls passed to MPI, and without."""
    if native:
        monkeypatch.setenv("PYCOLL_NATIVE", native)
    else:
        monkeypatch.delenv("PYCOLL_NATIVE", raising=False)
    assert runs(2, PROGRAMS / "mixed_requests.py").count("all requests") == 2


def test_a_collective_in_flight_progresses_in_a_blocking_message():
    assert runs(2, PROGRAMS / "receive_in_flight.py").count("came to its end 2.0") == 2


def test_what_lies_beside_a_program_is_found(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 17")
    path = tmp_path / "program.py"
    path.write_text("import beside\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nprint('beside', beside.VALUE)")
    assert "beside 17" in runs(2, path)


def test_the_program_stays_the_main_module():
    """Check that the file runs as Python itself runs it, also in threads and exit handlers that outlive it."""
    output = runs(2, os.path.relpath(PROGRAMS / "outliving.py"))
    for line in ("file True False True", "beside True", "at exit True"):
        assert output.count(line) == 2, output


def test_a_directory_with_a_main_file(tmp_path):
    (tmp_path / "__main__.py").write_text("from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nprint('main', __name__)")
    assert runs(2, tmp_path).count("main __main__") == 2


def test_exit_codes_pass():
    runs(2, PROGRAMS / "exiting.py", 3, code=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["helloworld"], "Hello, World! I am process 1 of 3"),
        (["ringtest", "-l", "3", "-n", "100"], "time for 3 loops"),
        (["futures", "-t", "2", "-m", "1", "-n", "4", "-l", "2", "-s", "1"], "MPIPoolExecutor - "),
        (["pingpong", "-m", "1", "-n", "64"], "MPI PingPong Test"),
    ],
    ids=lambda value: value[0],
)
def test_mpi4pys_benchmarks(arguments, expected):
    ranks = 2 if "pingpong" in arguments else 3
    assert expected in runs(ranks, "-m", "mpi4py.bench", *arguments)


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("backend", quick("gloo", "nccl", "mpi", "cpu:gloo,cuda:nccl", None))
def test_a_program_of_pytorch(backend):
    assert "backends {'pycoll'}" in runs(2, "--torch", PROGRAMS / "torch_program.py", *filter(None, [backend]))


@pytest.mark.skipif(bool(find_spec("torch")), reason="torch is installed")
def test_torch_is_missing():
    job = run(1, ["-m", "pycoll.run", "--torch", str(COLLECTIVES)])
    assert job.code not in (0, None) and "this needs torch: pip install torch" in job.output


def test_an_exception_on_one_rank_ends_the_job():
    path = PROGRAMS / "failing.py"
    output = runs(3, path, code=1)
    assert "rank 1 of 3 failed" in output and f'File "{path}", line 7' in output
    assert "RuntimeError: the second rank has had enough" in output


def test_a_file_that_is_not_there(tmp_path):
    job = run(2, ["-m", "pycoll.run", str(tmp_path / "nothing.py")])
    assert job.code not in (0, None)
    assert f"python -m pycoll.run: {tmp_path}/nothing.py: no such file\n" in job.output
    assert "Traceback" not in job.output and "usage:" not in job.output


def test_a_program_is_missing():
    job = run(1, ["-m", "pycoll.run"])
    assert job.code not in (0, None)
    assert "python -m pycoll.run: the following arguments are required: program\n" in job.output
    assert "usage:" not in job.output


def test_the_environment_chooses(monkeypatch):
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "ring")
    monkeypatch.setenv("PYCOLL_LOG", "algorithms")
    output = runs(2, COLLECTIVES)
    assert "pycoll.algorithms: allreduce of 32 bytes (float64) on 2 ranks: ring, set by PYCOLL_ALLREDUCE" in output


def test_a_communicator_s_choice_goes_before_the_environment_s(monkeypatch):
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "ring")
    monkeypatch.setenv("PYCOLL_LOG", "algorithms")
    output = runs(2, PROGRAMS / "choosing.py")
    for count, expected in (
        (1, "ring, set by PYCOLL_"),
        (2, "tree, set by comm.algorithm"),
        (3, "naive, requested by the call"),
    ):
        assert f"allreduce of {8 * count} bytes (float64) on 2 ranks: {expected}" in output


def test_a_wrong_choice_in_the_environment(monkeypatch):
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "fastest")
    output = runs(2, COLLECTIVES, code=1)
    assert "ValueError: environment variable PYCOLL_ALLREDUCE='fastest':" in output and "recursive_doubling" in output

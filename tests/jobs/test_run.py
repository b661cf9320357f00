"""Unmodified mpi4py programs under ``python -m pycoll.run``."""

import os
from importlib.util import find_spec

import pytest

from tests.launch import run
from tests.quick import quick

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
total, everything = np.zeros(4), np.zeros((size, 4), "i")
comm.Allreduce(np.full(4, float(rank)), total)
comm.Allgather([np.full(4, rank, "i"), MPI.INT], [everything, MPI.INT])
assert (total == sum(range(size))).all() and (everything[:, 0] == range(size)).all()
alone = np.zeros(1)
MPI.COMM_SELF.Allreduce(np.ones(1), alone)
assert alone[0] == 1 and comm.allreduce(1) == size
half = comm.Split(rank % 2)
half.Barrier()
cart = comm.Create_cart([size])
cart.Barrier()
if rank == 0:
    print(__name__, type(comm).__module__, type(MPI.COMM_SELF).__name__, type(half).__name__, type(cart).__name__)
    print(sys.argv[1:], __file__.endswith(sys.argv[0]))
"""

FAILING = """
import numpy as np
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise RuntimeError("the second rank has had enough")
MPI.COMM_WORLD.Allreduce(np.ones(2), np.empty(2))
"""

CHOOSING = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Allreduce(np.ones(1), np.empty(1))
comm.algorithm["Allreduce"] = "tree"
comm.Allreduce(np.ones(2), np.empty(2))
comm.Allreduce(np.ones(3), np.empty(3), algorithm="naive")
"""

CONSTANTS = """
import copy, pickle
from mpi4py import MPI

def tell(*facts):
    if MPI.COMM_WORLD.rank == 0:
        print(*facts)

class Holder:
    def __init__(self, comm):
        self.comm = comm

def reported(act):
    try:
        return act()
    except MPI.Exception as error:
        return error.Get_error_class()

for name in ("COMM_WORLD", "COMM_SELF"):
    comm = getattr(MPI, name)
    copies = [pickle.loads(pickle.dumps(comm, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    copies += [copy.copy(comm), copy.deepcopy(comm), MPI.COMM_WORLD.bcast(Holder(comm)).comm]
    tell(name, "is itself:", all(other is comm for other in copies), b"pycoll" in pickle.dumps(comm))
    for other in (MPI.Intracomm(comm), type(comm)(comm)):
        again = pickle.loads(pickle.dumps(other))
        tell("a copy:", again == comm, again is not comm, type(again) is type(other))
        tell("freed:", other.free(), bool(other))
    tell("handles:", type(type(comm).fromhandle(comm.handle)) is type(comm))
    tell("freed:", comm.free(), bool(comm), reported(comm.Free), bool(comm))
    duplicate = comm.Dup()
    try:
        pickle.dumps(duplicate)
    except ValueError as error:
        tell(str(error).split("'")[0])
    duplicate.free()
    tell("a duplicate:", bool(duplicate), comm.allreduce(1))
"""

OPTIONS = """
import sys
import mpi4py
for name, value in (option.split("=") for option in sys.argv[1:]):
    setattr(mpi4py.rc, name, {"True": True, "False": False}.get(value, value))
import numpy as np
from mpi4py import MPI
from mpi4py.MPI import COMM_SELF

comm = MPI.COMM_WORLD
print("initialized", MPI.Is_initialized())
if not MPI.Is_initialized():
    print("obtained", MPI.Init_thread(MPI.THREAD_FUNNELED) == MPI.THREAD_FUNNELED)
print("level", MPI.Query_thread(), "fatal", comm.Get_errhandler() == MPI.ERRORS_ARE_FATAL)
values, result = np.ones(5000), np.empty(5000)
for each in (comm, MPI.COMM_WORLD, COMM_SELF):
    each.Iallreduce(values, result).Wait()
    print("sum", result[0], each is MPI.COMM_WORLD, type(each) is type(comm))
request = comm.Allreduce_init(values, result)
request.Start()
request.Wait()
request.Free()
comm.Allreduce(values, result)
if mpi4py.rc.finalize is False:
    MPI.Finalize()
    print("finalized", MPI.Is_finalized())
"""

MODULES = """
import sys
import numpy as np
from mpi4py import MPI
MPI.COMM_WORLD.Allreduce(np.ones(3), np.empty(3))
print("modules", *sys.modules)
"""

ALONE = """
import sys
if "mpi4py" in sys.modules and "mpi4py.MPI" in sys.modules:
    print("MPI is imported")
if sys.argv[1:] == ["import"]:
    from mpi4py import MPI
    MPI.Finalize()
raise RuntimeError("not in a job")
"""

GAPS = """
import numpy as np
from mpi4py import MPI
gaps = MPI.INT.Create_vector(3, 1, 2).Commit()
send, recv = np.arange(6, dtype="i"), np.zeros(6, "i")
MPI.COMM_SELF.Iallgather([send, 1, gaps], [recv, 1, gaps]).Wait()
print(recv.tolist())
"""

REQUESTS = """
import copy
import pickle
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
peer, n = comm.rank ^ 1, 1 << 18
a, b, t = np.ones(n), np.empty(n), np.zeros(3)

def begin():
    b[:] = 0
    return [comm.Iallreduce(a, b), comm.Isend(np.arange(3.0), peer), comm.Irecv(t, peer)]

requests, statuses = begin(), []
assert all(isinstance(request, MPI.Request) for request in requests) and not isinstance(3, MPI.Request)
assert MPI.Request.Waitall(requests, statuses) is True and (b == 2).all() and t[2] == 2
assert len(statuses) == 3 and statuses[2].source == peer and statuses[0].source == MPI.ANY_SOURCE
requests = begin()
places = sorted(MPI.Request.Waitany(requests) for _ in requests)
assert places == [0, 1, 2] and MPI.Request.Waitany(requests) == MPI.UNDEFINED and (b == 2).all()
requests, places = begin(), []
while (some := MPI.Request.Waitsome(requests)) is not None:
    assert some
    places += some
assert sorted(places) == [0, 1, 2] and (b == 2).all()
requests, places = begin(), []
while (some := MPI.Request.Testsome(requests)) is not None:
    places += some
assert sorted(places) == [0, 1, 2]
requests = begin()
while not MPI.Request.Testall(requests):
    pass
assert (b == 2).all()
requests, places = begin(), []
while (found := MPI.Request.Testany(requests)) != (MPI.UNDEFINED, True):
    places += [found[0]] if found[1] else []
assert sorted(places) == [0, 1, 2]
made = [comm.isend("word", peer), comm.irecv(source=peer), comm.Create_cart([2]).Isend(a[:0], peer), MPI.REQUEST_NULL]
made += [comm.Irecv(b[:0], peer), persistent := comm.Send_init(a, MPI.PROC_NULL)]
assert [type(request) for request in made] == [MPI.Request] * 5 + [MPI.Prequest]
assert type(MPI.Prequest(persistent)) is MPI.Prequest and type(MPI.Request(persistent)) is MPI.Request
for kind in (MPI.Request, MPI.Prequest):
    null = kind(MPI.REQUEST_NULL)
    copies = [kind.fromhandle(null.handle), kind.f2py(null.py2f()), pickle.loads(pickle.dumps(null)), copy.copy(null)]
    assert all(type(request) is kind and request == null for request in copies)
assert pickle.loads(pickle.dumps(MPI.REQUEST_NULL)) is MPI.REQUEST_NULL
persistent.Free()
comm.Isend(a[:0], peer)
MPI.Request.waitall(made[:3] + made[4:5])
mixed = lambda: [comm.Iallreduce(a, b), comm.isend("word", peer), comm.irecv(source=peer)]
assert MPI.Request.waitall(mixed()) == [None, None, "word"]
requests, objects = mixed(), []
while (some := MPI.Request.waitsome(requests))[0] is not None:
    objects += some[1]
assert objects.count("word") == 1 and len(objects) == 3
requests = mixed()
while not (found := MPI.Request.testall(requests))[0]:
    pass
assert found[1] == [None, None, "word"]
requests = mixed()
assert sorted(str(MPI.Request.waitany(requests)[1]) for _ in requests) == ["None", "None", "word"]
assert MPI.Request.waitany(requests) == (MPI.UNDEFINED, None)
assert MPI.Request.testany(requests) == (MPI.UNDEFINED, True, None)
assert MPI.Request.Waitall([comm.Isend(a[:1], peer), comm.Irecv(t[:1], peer)]) is True  # of mpi4py only
persistent = [comm.Allreduce_init(a, b), comm.Send_init(a[:3], peer), comm.Recv_init(t, peer)]
assert all(isinstance(request, MPI.Prequest) for request in persistent) and issubclass(MPI.Prequest, MPI.Request)
b[:] = 0
MPI.Prequest.Startall(persistent)
MPI.Prequest.Waitall(persistent)
assert (b == 2).all() and t[2] == 1
for request in persistent:
    request.Free()
request = comm.Iallreduce(a, b)
for method in (request.Cancel, request.Free):
    try:
        method()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_REQUEST
    else:
        raise AssertionError(method)
while not request.Get_status():
    pass
assert request.Wait()
# collectives in flight progress while requests of mpi4py are waited for
request = comm.Iallreduce(a, b)
if comm.rank == 0:
    MPI.Request.Waitall([comm.Irecv(t, 1)])
    request.Wait()
else:
    request.Wait()
    comm.Send(t, 0)
print("all requests", flush=True)
"""

IN_FLIGHT = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
a, b, t = np.ones(1 << 20), np.empty(1 << 20), np.empty(1)
request = comm.Iallreduce(a, b)
if comm.rank == 0:
    comm.Recv(t, source=1)
    request.Wait()
else:
    request.Wait()
    comm.Send(b[:1], dest=0)
print("came to its end", b[0])
"""


TORCH = """
import sys
from datetime import timedelta
import torch
from torch import distributed
from torch.distributed import init_process_group, new_group
if len(sys.argv) > 1:
    init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
else:
    init_process_group()
value = torch.ones(3)
distributed.all_reduce(value)
group = new_group([0, 1], backend="gloo")
distributed.all_reduce(value, group=group)
assert (value == 4).all()
mesh = distributed.init_device_mesh("cpu", (2,))
names = {distributed.get_backend(each) for each in (None, group, mesh.get_group())}
if distributed.get_rank() == 0:
    print("backends", names)
distributed.destroy_process_group()
"""


def runs(ranks, *arguments, code=0):
    job = run(ranks, ["-m", "pycoll.run", *map(str, arguments)])
    assert not job.timed_out and job.left == []
    assert (job.code == 0) == (code == 0), job.output
    return job.output


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("ranks", quick(3, 1))
def test_a_program(program, ranks):
    output = runs(ranks, program, "--first", "-m", "two words")
    assert "__main__ pycoll.api.comm Comm Comm Cartcomm" in output
    assert "['--first', '-m', 'two words'] True" in output


def test_the_constants_are_what_mpi4py_makes_them(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(CONSTANTS)
    plain = run(2, [str(path)])
    assert plain.code == 0 and "is itself: True False" in plain.output
    assert runs(2, path).splitlines() == plain.output.splitlines()


@pytest.mark.parametrize(
    "options", [["initialize=False", "finalize=False"], ["thread_level=serialized", "errors=fatal"]], ids=" ".join
)
def test_the_options_of_mpi4py(tmp_path, options):
    path = tmp_path / "program.py"
    path.write_text(OPTIONS)
    plain = run(2, [str(path), *options])
    assert plain.output.count("sum 2.0") == 4
    output = runs(2, path, *options)
    assert sorted(output.splitlines()) == sorted(plain.output.splitlines())


def test_few_modules_are_imported_at_the_start(tmp_path, monkeypatch):
    monkeypatch.delenv("PYCOLL_NATIVE", raising=False)
    path = tmp_path / "program.py"
    path.write_text(MODULES)
    plain, ours = (set(output.split()) for output in (run(1, [str(path)]).output, runs(1, path)))
    more = sorted(ours - plain)
    assert len(more) <= 100, more


@pytest.mark.parametrize("arguments", [[], ["import"]])
def test_an_exception_outside_of_the_time_in_which_mpi_is_initialized(tmp_path, arguments):
    path = tmp_path / "program.py"
    path.write_text(ALONE)
    output = runs(1, path, *arguments, code=1)
    assert "RuntimeError: not in a job" in output and f'File "{path}", line' in output
    assert "MPI is imported" not in output and "ends the job" not in output


def test_a_first_nonblocking_call_with_gaps_on_comm_self(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(GAPS)
    assert "[0, 0, 2, 0, 4, 0]" in runs(1, path)


@pytest.mark.parametrize("native", ["", "0"])
def test_class_methods_of_mpi_accept_requests_of_both_kinds(tmp_path, native, monkeypatch):
    """With short calls passed to MPI, and without."""
    if native:
        monkeypatch.setenv("PYCOLL_NATIVE", native)
    else:
        monkeypatch.delenv("PYCOLL_NATIVE", raising=False)
    path = tmp_path / "program.py"
    path.write_text(REQUESTS)
    assert runs(2, path).count("all requests") == 2


def test_a_collective_in_flight_progresses_in_a_blocking_message(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(IN_FLIGHT)
    assert runs(2, path).count("came to its end 2.0") == 2


def test_what_lies_beside_a_program_is_found(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 17")
    path = tmp_path / "program.py"
    path.write_text(
        "import beside, sys\nfrom mpi4py import MPI\nprint('beside', beside.VALUE)\nMPI.COMM_WORLD.Barrier()"
    )
    assert "beside 17" in runs(2, path)


OUTLIVING = """
import atexit, os, pickle, sys, threading, time
from mpi4py import MPI

class Ours:
    number: int

def at_exit():
    print("at exit", type(MPI.COMM_WORLD.bcast(Ours())) is Ours, flush=True)

def beside():
    time.sleep(0.3)
    print("beside", type(pickle.loads(pickle.dumps(Ours()))) is Ours, flush=True)

atexit.register(at_exit)
threading.Thread(target=beside).start()
assert Ours.__annotations__ == {"number": int}
print("file", os.path.isabs(__file__), os.path.isabs(sys.argv[0]), vars(sys.modules["__main__"]) is globals())
"""


def test_the_program_stays_the_main_module(tmp_path):
    """Check that the file runs as Python itself runs it, also in threads and exit handlers that outlive it."""
    (tmp_path / "program.py").write_text(OUTLIVING)
    output = runs(2, os.path.relpath(tmp_path / "program.py"))
    for line in ("file True False True", "beside True", "at exit True"):
        assert output.count(line) == 2, output


def test_a_directory_with_a_main_file(tmp_path):
    (tmp_path / "__main__.py").write_text("from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nprint('main', __name__)")
    assert runs(2, tmp_path).count("main __main__") == 2


def test_exit_codes_pass(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import sys\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nsys.exit(3)")
    runs(2, path, code=3)


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
def test_a_program_of_pytorch(tmp_path, backend):
    path = tmp_path / "program.py"
    path.write_text(TORCH)
    assert "backends {'pycoll'}" in runs(2, "--torch", path, *filter(None, [backend]))


@pytest.mark.skipif(bool(find_spec("torch")), reason="torch is installed")
def test_torch_is_missing(program):
    job = run(1, ["-m", "pycoll.run", "--torch", str(program)])
    assert job.code not in (0, None) and "this needs torch: pip install torch" in job.output


def test_an_exception_on_one_rank_ends_the_job(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(FAILING)
    output = runs(3, path, code=1)
    assert "rank 1 of 3 failed" in output and f'File "{path}", line 5' in output
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


def test_the_environment_chooses(program, monkeypatch):
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "ring")
    monkeypatch.setenv("PYCOLL_LOG", "algorithms")
    output = runs(2, program)
    assert "pycoll.algorithms: allreduce of 32 bytes (float64) on 2 ranks: ring, set by PYCOLL_ALLREDUCE" in output


def test_a_communicator_s_choice_goes_before_the_environment_s(tmp_path, monkeypatch):
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "ring")
    monkeypatch.setenv("PYCOLL_LOG", "algorithms")
    path = tmp_path / "program.py"
    path.write_text(CHOOSING)
    output = runs(2, path)
    for count, expected in (
        (1, "ring, set by PYCOLL_"),
        (2, "tree, set by comm.algorithm"),
        (3, "naive, requested by the call"),
    ):
        assert f"allreduce of {8 * count} bytes (float64) on 2 ranks: {expected}" in output


def test_a_wrong_choice_in_the_environment(program, monkeypatch):
    monkeypatch.setenv("PYCOLL_ALLREDUCE", "fastest")
    output = runs(2, program, code=1)
    assert "ValueError: environment variable PYCOLL_ALLREDUCE='fastest':" in output and "recursive_doubling" in output

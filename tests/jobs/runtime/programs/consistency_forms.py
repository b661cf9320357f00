"""Forms of a collective, and dtypes, that differ between ranks."""

import numpy as np
from mpi4py import MPI

import pycoll
from tests.jobs import calls
from tests.jobs.calls import call, form, mine, raises, rank, size, world


def forms():
    for other in ("blocking", "nonblocking", "persistent"):
        for name in ("allreduce", "bcast", "barrier", "scan", "alltoall") if other != form else ():
            form_differs(name, other)


def form_differs(name, other):
    arguments = [] if name == "barrier" else [np.ones(2 * size)]
    kind = form if mine else other
    function = getattr(pycoll, f"i{name}" if kind == "nonblocking" else name + "_init" * (kind == "persistent"))

    def started():
        result = function(*arguments)
        return result.wait() if kind == "nonblocking" else result

    request = pycoll.iallreduce(np.ones(3))
    for _ in range(2):
        raises(pycoll.MismatchError, ["form differs: ", repr(form), repr(other)], started)
        assert (pycoll.allreduce(np.full(3, rank)) == sum(range(size))).all()
    assert (request.wait() == size).all()


def dtypes():
    for _ in range(2):
        dtypes_of_functions()
        dtypes_of_methods()
        equal_bytes()


def differs(function, *args):
    raises(pycoll.MismatchError, ["dtype differs: ", "float64", "int64"], function, *args)


f, i = np.ones(size), np.ones(size, int)
a, type_a = (i, MPI.INT64_T) if mine else (f, MPI.DOUBLE)
one = [1] * size


def dtypes_of_functions():
    differs(call, "bcast", [a])
    differs(call, "bcast", [f, a])
    differs(call, "allreduce", [a])
    differs(call, "allgather", a[:1])
    differs(call, "allgatherv", a[:1], [a.copy(), one])
    differs(call, "alltoallv", [a, one], [a.copy(), one])
    call("bcast", [f] if mine else f)


comm = pycoll.Comm(world)


def method(name, *args):
    named = {"blocking": name, "nonblocking": "I" + name.lower(), "persistent": name + "_init"}[form]
    request = getattr(comm, named)(*args)
    if form == "persistent":
        request.Start()
    if request:
        request.Wait()


def dtypes_of_methods():
    specs = [lambda array: array, lambda array: [array, type_a], lambda array: [array, array.size, type_a]]
    for name, send, recv in (
        ("Bcast", a, None),
        ("Allgather", a[:1], a.copy()),
        ("Alltoall", a, a.copy()),
        ("Allreduce", a, a.copy()),
        ("Scan", a, a.copy()),
        ("Gather", a[:1], a.copy()),
        ("Scatter", a, a[:1].copy()),
    ):
        for spec in specs if name in ("Bcast", "Allreduce", "Scan") else specs[:2]:
            differs(method, name, spec(send), *([] if recv is None else [spec(recv)]))
    differs(method, "Allgatherv", a[:1], [a.copy(), one, type_a])
    differs(method, "Alltoallv", [a, one, type_a], [a.copy(), one])
    differs(method, "Bcast", a if mine else [f, MPI.DOUBLE])


def equal_bytes():
    """Datatypes that differ, but have the same elements."""
    vector = MPI.DOUBLE.Create_vector(size, 1, 1).Commit()
    method("Bcast", f if mine else [f, 1, vector])
    method("Bcast", [f, MPI.BYTE] if mine else f)
    method("Bcast", [i, MPI.INT64_T] if mine else [i, MPI.LONG])
    method("Allgather", [f[:1], MPI.BYTE] if mine else f[:1], f.copy())
    vector.Free()


calls.run(globals())

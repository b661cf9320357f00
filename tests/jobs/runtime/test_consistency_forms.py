"""PYCOLL_CHECK with forms of a collective, and dtypes, that differ between ranks."""

import pytest

from .test_consistency import FORMS, program

FORMS_DIFFER = """
def call(name, *args, **kwargs):
    kind = (form if mine else other) if differ else "blocking"
    function = getattr(pycoll, f"i{name}" if kind == "nonblocking" else name + "_init" * (kind == "persistent"))
    result = function(*args, **kwargs)
    return result.wait() if kind == "nonblocking" else result

for other in ("blocking", "nonblocking", "persistent"):
    for name in ("allreduce", "bcast", "barrier", "scan", "alltoall") if other != form else ():
        arguments = [] if name == "barrier" else [np.ones(2 * size)]
        flight = pycoll.iallreduce(np.ones(3))
        for turn in range(2):
            differ = True
            raises(pycoll.MismatchError, ["form differs: ", repr(form), repr(other)], name, *arguments)
            differ = False
            assert (call("allreduce", np.full(3, rank)) == sum(range(size))).all()
        assert (flight.wait() == size).all()
"""

DTYPES_DIFFER = """
comm = pycoll.Comm(world)
f, i = np.ones(size), np.ones(size, int)
a, type_a = (i, MPI.INT64_T) if mine else (f, MPI.DOUBLE)
one = [1] * size

def method(name, *args):
    named = {"blocking": name, "nonblocking": "I" + name.lower(), "persistent": name + "_init"}[form]
    request = getattr(comm, named)(*args)
    if form == "persistent":
        request.Start()
    if request:
        request.Wait()

function = call
differs = ["dtype differs: ", "float64", "int64"]
for turn in range(2):
    call = function
    raises(pycoll.MismatchError, differs, "bcast", [a])
    raises(pycoll.MismatchError, differs, "bcast", [f, a])
    raises(pycoll.MismatchError, differs, "allreduce", [a])
    raises(pycoll.MismatchError, differs, "allgather", a[:1])
    raises(pycoll.MismatchError, differs, "allgatherv", a[:1], [a.copy(), one])
    raises(pycoll.MismatchError, differs, "alltoallv", [a, one], [a.copy(), one])
    call("bcast", [f] if mine else f)
    call = method
    for name, send, recv in (("Bcast", a, None), ("Allgather", a[:1], a.copy()), ("Alltoall", a, a.copy()),
                             ("Allreduce", a, a.copy()), ("Scan", a, a.copy()), ("Gather", a[:1], a.copy()),
                             ("Scatter", a, a[:1].copy())):
        specs = [lambda array: array, lambda array: [array, type_a], lambda array: [array, array.size, type_a]]
        for spec in specs if name in ("Bcast", "Allreduce", "Scan") else specs[:2]:
            raises(pycoll.MismatchError, differs, name, spec(send), *([] if recv is None else [spec(recv)]))
    raises(pycoll.MismatchError, differs, "Allgatherv", a[:1], [a.copy(), one, type_a])
    raises(pycoll.MismatchError, differs, "Alltoallv", [a, one, type_a], [a.copy(), one])
    raises(pycoll.MismatchError, differs, "Bcast", a if mine else [f, MPI.DOUBLE])
    vector = MPI.DOUBLE.Create_vector(size, 1, 1).Commit()
    method("Bcast", f if mine else [f, 1, vector])
    method("Bcast", [f, MPI.BYTE] if mine else f)
    method("Bcast", [i, MPI.INT64_T] if mine else [i, MPI.LONG])
    method("Allgather", [f[:1], MPI.BYTE] if mine else f[:1], f.copy())
    vector.Free()
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [FORMS_DIFFER, DTYPES_DIFFER], ids=["forms", "dtypes"])
def test_forms_and_dtypes_that_differ(monkeypatch, text, form):
    program(monkeypatch, text, 3, form, CHECK="1", TIMEOUT="60")

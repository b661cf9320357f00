"""The class methods of MPI.Request, with requests of collectives and of messages."""

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
while (some := MPI.Request.Testsome(requests, statuses := [])) is not None:
    assert len(statuses) == len(some)
    assert all(status.source == peer for status, place in zip(statuses, some, strict=True) if place == 2)
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


def mixed():
    return [comm.Iallreduce(a, b), comm.isend("word", peer), comm.irecv(source=peer)]


assert MPI.Request.waitall(mixed()) == [None, None, "word"]
requests, objects = mixed(), []
while (some := MPI.Request.waitsome(requests))[0] is not None:
    objects += some[1] or []
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
several = [comm.Allreduce_init(a, b), comm.Send_init(a[:3], peer), comm.Recv_init(t, peer)]
assert all(isinstance(request, MPI.Prequest) for request in several) and issubclass(MPI.Prequest, MPI.Request)
b[:] = 0
MPI.Prequest.Startall(several)
MPI.Prequest.Waitall(several)
assert (b == 2).all() and t[2] == 1
MPI.Prequest.Startall(several)
assert sorted(MPI.Prequest.Waitany(several) for _ in several) == [0, 1, 2]
assert MPI.Prequest.Waitany(several) == MPI.UNDEFINED and MPI.Prequest.Waitsome(several) is None
for request in several:
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
assert request and request.Wait() and not request
# collectives in flight progress while requests of mpi4py are waited for
request = comm.Iallreduce(a, b)
if comm.rank == 0:
    MPI.Request.Waitall([comm.Irecv(t, 1)])
    request.Wait()
else:
    request.Wait()
    comm.Send(t, 0)
print("all requests", flush=True)

"""Copies, pickles and frees the predefined communicators."""

import copy
import pickle

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

"""Copies, pickles and frees the predefined communicators."""

import copy
import pickle

from mpi4py import MPI


def print_once(*facts):
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
    print_once(name, "is itself:", all(other is comm for other in copies), b"pycoll" in pickle.dumps(comm))
    for other in (MPI.Intracomm(comm), type(comm)(comm)):
        again = pickle.loads(pickle.dumps(other))
        print_once("a copy:", again == comm, again is not comm, type(again) is type(other))
        print_once("freed:", other.free(), bool(other))
    print_once("handles:", type(type(comm).fromhandle(comm.handle)) is type(comm))
    print_once("freed:", comm.free(), bool(comm), reported(comm.Free), bool(comm))
    duplicate = comm.Dup()
    try:
        pickle.dumps(duplicate)
    except ValueError as error:
        print_once(str(error).split("'")[0])
    duplicate.free()
    print_once("a duplicate:", bool(duplicate), comm.allreduce(1))

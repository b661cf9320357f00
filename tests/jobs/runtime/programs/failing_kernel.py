"""The reduction of a collective raises an error."""

import sys
from functools import partial

import numpy as np
from mpi4py import MPI

import pycoll
from pycoll.arguments.ops import kernels

pycoll.abort_on_exception()
form, comm = sys.argv[1], MPI.COMM_WORLD.Dup()
pycoll.attach(comm)
send, recv = np.ones(9), np.empty(9)
failing = False


def add(left, right, out):
    if failing:
        raise OSError("made up")
    np.add(left, right, out)


kernels[np.add, send.dtype] = lambda *operands: partial(add, *operands)


def call():
    if form == "nonblocking":
        pycoll.iallreduce(send, recv, algorithm="ring", comm=comm).wait()
    elif form == "elsewhere":
        pycoll.allreduce(send[:], recv, algorithm="ring", comm=comm)
    else:
        pycoll.allreduce(send, recv, algorithm="ring", comm=comm)


for _ in range(0 if form == "first" else 4):
    call()
failing = True
try:
    call()
except OSError:
    print("raised", flush=True)
failing = False
for _ in range(2):
    try:
        call()
    except pycoll.CollectiveInterrupted as error:
        assert "cannot be used any more" in str(error) and "made up" in str(error), error
        print("refused", flush=True)
total = pycoll.allreduce(send)  # on another communicator
assert total[0] == comm.size
comm.Free()

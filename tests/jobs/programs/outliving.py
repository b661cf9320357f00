"""A thread and an exit handler outlive the main module."""

import atexit
import os
import pickle
import sys
import threading
import time

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

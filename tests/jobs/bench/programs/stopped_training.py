"""Train while a signal stops rank 1 after the first checkpoint."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from mpi4py import MPI

from pycoll.bench.train.__main__ import main


def stop():
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)


if MPI.COMM_WORLD.rank == 1:
    threading.Thread(target=stop).start()
sys.exit(main(["--save", sys.argv[1], "--epochs", "1000", "--steps", "2", "--json", sys.argv[3]]))

"""A thread exits, and the program continues."""

import sys
import threading

import numpy as np

import pycoll

pycoll.abort_on_exception()
thread = threading.Thread(target=sys.exit, args=[1])
thread.start()
thread.join()
assert pycoll.allreduce(np.ones(3)).all()
print("came to its end", flush=True)

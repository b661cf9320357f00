"""The warning of an unknown variable is an error: rank 0 raises it when the communicator can be used."""

import warnings

import numpy as np

import pycoll

warnings.simplefilter("error")
try:
    result = pycoll.allreduce(np.ones(2))
except RuntimeWarning:
    print("warned", flush=True)
    result = pycoll.allreduce(np.ones(2))  # for which the other ranks wait
assert result[0] == pycoll.attach().size
print("went on", flush=True)

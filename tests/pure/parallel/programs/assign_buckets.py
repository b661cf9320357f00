"""Print the buckets of 40 arrays of different sizes and dtypes."""

import mpi4py
import numpy as np

mpi4py.rc.initialize = False
from pycoll.parallel.buckets import assign

dtypes = ["f8", "f4", "f2", "c8"]
print(assign({f"array{i}": np.ones(i % 5, dtypes[i * i % 7 % 4]) for i in range(40)}, 64, 16))

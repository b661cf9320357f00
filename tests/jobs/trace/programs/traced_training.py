"""Two steps of DistributedDataParallel."""

import numpy as np

from pycoll.parallel import SGD, DistributedDataParallel

parameters = {name: np.zeros(3000) for name in ("a", "b")}
with DistributedDataParallel(parameters, bucket_bytes=24000, first_bucket_bytes=24000) as ddp:
    optimizer = SGD(parameters, lr=0.1)
    for _ in range(2):
        for name in ("b", "a"):
            ddp.ready(name, np.ones(3000))
        optimizer.step(ddp.synchronize())

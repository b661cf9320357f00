"""A rank leaves a pipeline or ring attention, and the calls of the others time out."""

import contextlib

import numpy as np

import pycoll
from pycoll.base import settings
from pycoll.parallel import Pipeline, RingAttention
from tests.jobs import calls
from tests.jobs.calls import raises, rank, size, world


class Chunk:
    stops = ""

    def forward(self, x):
        if self.stops == "forward":
            raise InterruptedError
        return x + 1, None

    def backward(self, dy, saved):
        if self.stops == "backward":
            raise InterruptedError
        return dy


def pipeline(where, leaver, steps, text):
    chunk = Chunk()
    pipe = Pipeline([chunk], lambda y, targets: (0.0, y))
    batch = np.ones(4)
    for _ in range(int(steps)):
        pipe.step(batch, batch)
    world.Barrier()
    settings.TIMEOUT = 0.5
    if rank == int(leaver):
        chunk.stops = where
        with contextlib.suppress(InterruptedError):
            pipe.step(batch, batch)
    else:
        waits = f"Pipeline.step on rank {rank} of {size} did not finish in 0.5 s: it waits for {text}"
        raises(pycoll.CollectiveTimeout, [waits], pipe.step, batch, batch)
    world.Barrier()


def ring_attention():
    attention, array = RingAttention(), np.ones((1, 4, 1, 2))
    _, saved = attention.forward(array, array, array)
    world.Barrier()
    settings.TIMEOUT = 0.5
    if rank:
        waits = "did not finish in 0.5 s: it waits for rank 0 to send a block, or for rank 0 to receive one"
        text = f"moving the keys and values in RingAttention on rank 1 of 2 {waits}"
        raises(pycoll.CollectiveTimeout, [text], attention.backward, array, saved)
    world.Barrier()


calls.run(globals())

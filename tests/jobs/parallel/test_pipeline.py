"""PYCOLL_TIMEOUT with a pipeline: errors name the waiting rank and what it waits for."""

import pytest

from tests.jobs.runtime.test_consistency import program

EXPECT = """
from pycoll.base import settings
from pycoll.parallel import Pipeline

def expect(texts, function, *args):
    try:
        function(*args)
    except pycoll.CollectiveTimeout as problem:
        for text in texts:
            assert text in str(problem), (text, str(problem))
    else:
        raise AssertionError("no CollectiveTimeout")
"""

PIPELINE = """
class Chunk:
    stops = False

    def forward(self, x):
        if self.stops == "forward":
            raise InterruptedError
        return x + 1, None

    def backward(self, dy, saved):
        if self.stops == "backward":
            raise InterruptedError
        return dy

chunk = Chunk()
pipe = Pipeline([chunk], lambda y, targets: (0.0, y))
batch = np.ones(4)
if STEPS:
    pipe.step(batch, batch)
world.Barrier()
settings.TIMEOUT = 0.5
if rank == STOPS:
    chunk.stops = WHERE
    try:
        pipe.step(batch, batch)
    except InterruptedError:
        pass
else:
    expect([f"Pipeline.step on rank {rank} of {size} did not finish in 0.5 s: it waits for " + TEXT],
           pipe.step, batch, batch)
world.Barrier()
"""


@pytest.mark.parametrize(
    "where, stops, steps, text",
    [
        ("forward", 0, 0, "rank 0 to send the activation of micro-batch 0 for chunks[0]"),
        ("forward", 0, 1, "rank 0 to send the activation of micro-batch 0 for chunks[0]"),
        ("forward", 1, 0, "rank 1 to send the gradient of micro-batch 0 for chunks[0]"),
        ("backward", 1, 1, "rank 1 to send the gradient of micro-batch 0 for chunks[0]"),
    ],
)
def test_a_rank_that_leaves_a_pipeline(monkeypatch, where, stops, steps, text):
    values = {"WHERE": where, "STOPS": stops, "STEPS": steps, "TEXT": text}
    program(monkeypatch, EXPECT + "".join(f"{name} = {value!r}\n" for name, value in values.items()) + PIPELINE, 2)

"""PYCOLL_TIMEOUT with ring attention: errors name the waiting rank and what it waits for."""

from tests.jobs.runtime.test_consistency import program

from .test_pipeline import EXPECT

RING = """
from pycoll.parallel import RingAttention
attention, array = RingAttention(), np.ones((1, 4, 1, 2))
_, saved = attention.forward(array, array, array)
world.Barrier()
settings.TIMEOUT = 0.5
if rank:
    waits = "did not finish in 0.5 s: it waits for rank 0 to send a block, or for rank 0 to receive one"
    where = f"in RingAttention on rank 1 of 2 {waits}"
    expect([f"moving the keys and values {where}"], attention.backward, array, saved)
world.Barrier()
"""


def test_a_rank_that_leaves_ring_attention(monkeypatch):
    program(monkeypatch, EXPECT + RING, 2)

"""PYCOLL_TIMEOUT with ring attention: errors name the waiting rank and what it waits for."""

from tests.launch import output_of

from .test_pipeline import PROGRAM


def test_a_rank_that_leaves_ring_attention():
    output_of(2, PROGRAM, "ring_attention")

"""All-gather of blocks of different lengths: every rank gets the blocks of all ranks.

All ranks know all counts, so every algorithm of `allgather` serves; its formulas are for equal blocks.
"""

from ..schedule.registry import adopt

adopt("allgatherv", "allgather")

"""All-gather with blocks of different lengths: every rank gets the blocks of all ranks.

All ranks know all counts, so it has all algorithms of `allgather`.  The formulas are for blocks of equal length.
"""

from ..schedule.registry import adopt

adopt("allgatherv", "allgather")

"""All-to-all with blocks of different lengths and datatypes: no rank forwards blocks of other ranks.

The algorithms are those of `alltoall` that send every block directly to its destination.  The formulas are for blocks
of equal length.
"""

from ..schedule.registry import adopt

adopt("alltoallw", "alltoall", "naive", "pairwise")

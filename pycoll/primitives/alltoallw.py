"""All-to-all of blocks of different lengths and datatypes: no rank handles blocks that are not its own.

The algorithms are those of `alltoall` that send every block straight to its rank; their formulas are for equal blocks.
"""

from ..schedule.registry import adopt

adopt("alltoallw", "alltoall", "naive", "pairwise")

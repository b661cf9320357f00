"""The catalogue: one file per primitive, one generator per algorithm.

A docstring's ``Rounds``, ``Messages``, ``Sent``, ``Received`` and ``Cost`` lines are data: the tests
evaluate them and hold them against the counted schedule.  In them ``p`` is the number of ranks, ``Z`` the
bytes of the whole vector (of all ranks' blocks together for scatter, gather, allgather and
reduce_scatter, of one rank's send buffer for alltoall), ``S`` the number of segments of a pipeline,
``lg(p)`` the logarithm to base 2 rounded up, and ``odd(p)`` the odd part of p.
The formulas are for p >= 2; with one rank nothing moves.  ``X; at most Y`` is X where p is a power of two,
and at most Y elsewhere; ``at most Y`` is a bound for every p.  ``Messages``, ``Sent`` and ``Received`` are
those of the busiest rank, each for itself, with root 0.  ``Cost`` counts latency (alpha), time per byte sent
or received (beta) and time per byte combined (gamma) along the critical path, each as if it were alone, where
a rank sends and receives at the same time.
"""

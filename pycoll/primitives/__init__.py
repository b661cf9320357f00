"""The catalogue: one file per primitive, one generator per algorithm.

A docstring's ``Rounds``, ``Messages``, ``Sent``, ``Received`` and ``Cost`` lines are data: the tests
evaluate them and hold them against the counted schedule.  In them ``p`` is the number of ranks, ``h`` that of
hosts, ``Z`` the
bytes of the whole vector (of all ranks' blocks together for scatter, gather, allgather and
reduce_scatter, of one rank's send buffer for alltoall), ``S`` the number of segments of a pipeline,
``lg(p)`` the logarithm to base 2 rounded up, and ``bruck(p)`` the hops that all distances below p take
together, one for each bit set (p/2*lg(p) where p is a power of two).

The formulas are for p >= 2; with one rank nothing moves.  ``X; at most Y`` is X where p is a power of two,
and at most Y elsewhere; ``at most Y`` is a bound for every p.  ``Messages``, ``Sent`` and ``Received`` are
those of the busiest rank, each for itself, with root 0.  ``Cost`` adds up, along the critical path, latency
(alpha) for each message, time per byte sent or received (beta) and time per byte combined (gamma), where a
rank sends one message and receives another at the same time; the longest path is found for each of the
three by itself, so their sum is an upper bound.
"""

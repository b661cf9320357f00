"""The catalogue: one file per primitive, one generator per algorithm.

Every primitive but alltoallw has algorithms named ``naive``, ``tree`` and ``ring``, so that primitives can be compared.
``naive`` follows the definition in the MPI standard.  ``tree`` has about lg(p) rounds: with a root, it is a binomial
tree; without, it is two binomial trees, recursive doubling, or Bruck's algorithm.  ``ring`` sends to neighbors only.

The ``Rounds``, ``Messages``, ``Sent``, ``Received`` and ``Cost`` lines of docstrings are data.  The tests evaluate them
and compare them with the counted schedule.  Their notation is:

- ``p``: the number of ranks;
- ``h``: the number of hosts;
- ``Z``: the bytes of the whole vector; for scatter, gather, allgather and reduce_scatter the blocks of all ranks
  together, for alltoall the send buffer of one rank;
- ``S``: the number of segments of a pipeline;
- ``lg(p)``: the logarithm to base 2, rounded up;
- ``digits(p, b)``: the number of digits to base b that are not 0, of all numbers below p (p/2*lg(p) for base 2 and
  powers of two).  These are the hops for all distances below p, with one hop for each digit;
- ``k``: the number in the name of the algorithm, for example 4 for ``knomial:4``;
- ``log(p, k)``: the logarithm to base k, rounded up;
- ``fan(p, k)``: the number of messages that the root of a k-nomial tree sends ((k-1)*log(p, k) for powers of k);
- ``pat(p, k)``: the number of rounds of PAT (lg(p) if k >= p/2, and p-1 if k is 1);
- ``side(p, k)``: the side of the smallest cube of k dimensions that has room for p ranks;
- ``ports(p, k)``, ``around(p, k)`` and ``lgs(p, k)``, for a torus of k dimensions: the number of ports of a rank, two
  for each side of more than one rank; the sum of the sides, each less 1; and the sum of lg over the sides.

The formulas are for p >= 2; with one rank nothing moves.  ``X; at most Y`` is X if p is a power of two, or of the
number k in the name, and at most Y otherwise.  ``at most Y`` is a bound for every p.

``Messages``, ``Sent`` and ``Received`` are maxima over all ranks, with root 0; each may be the maximum of another rank.
``Cost`` is a sum along the critical path: latency for each message (alpha), time per byte sent or received (beta), and
time per byte combined (gamma).  A rank sends one message and receives another at the same time.  The longest path is
found separately for each of the three, so their sum is an upper bound.
"""

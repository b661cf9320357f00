"""Benchmarks: ``python -m bench`` times the collectives, ``python -m bench.train`` trains with them."""

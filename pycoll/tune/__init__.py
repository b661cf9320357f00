"""Measures the algorithms of collectives; ``python -m pycoll.tune`` writes the results to a tuning file."""

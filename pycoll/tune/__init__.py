"""Measures collectives side by side; ``python -m pycoll.tune`` writes the results into a tuning file."""

"""Measures collectives side by side; ``python -m pycoll.tune`` writes what it finds into a tuning file."""

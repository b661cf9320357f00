"""Drawings of algorithms, made only from their schedules, without MPI: ``python -m pycoll.draw --help``."""

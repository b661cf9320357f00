"""What the algorithms do, drawn from their schedules alone, without MPI: ``python -m pycoll.draw --help``."""

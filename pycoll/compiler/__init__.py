"""From a schedule and a layout of blocks to a program, a flat list of steps; it knows neither MPI nor arrays."""

"""The compiler turns a schedule and a layout of blocks into a flat list of steps.  It knows neither MPI nor arrays."""

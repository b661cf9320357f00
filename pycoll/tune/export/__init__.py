"""Measures the algorithms of the MPI library itself, and writes the files by which the library selects them."""

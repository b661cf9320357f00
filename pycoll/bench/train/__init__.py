"""Train a multilayer perceptron with the data-parallel drivers."""

from pycoll.base import mpi as _mpi  # noqa: F401  # says if there is no MPI library

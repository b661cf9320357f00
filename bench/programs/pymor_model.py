"""Apply a distributed operator, led by rank 0, as in the documentation of pyMOR."""

import numpy as np
from pymor.operators.mpi import mpi_wrap_operator
from pymor.operators.numpy import NumpyMatrixOperator
from pymor.tools import mpi

if mpi.rank0:
    matrix = mpi.call(mpi.function_call_manage, NumpyMatrixOperator, np.eye(50) * 2)
    operator = mpi_wrap_operator(matrix, mpi_range=True, mpi_source=True)
    vectors = operator.source.zeros(3)
    for _ in range(20):
        vectors = operator.apply(vectors)
        vectors.norm()

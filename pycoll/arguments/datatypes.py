"""The predefined datatypes of MPI that the front of the compiled core reads, with their dtypes."""

from __future__ import annotations

from functools import cache

import numpy as np
from mpi4py import MPI

from .buffer_spec import dtype_of

_DATATYPES = [MPI.BYTE, MPI.CHAR, MPI.SIGNED_CHAR, MPI.UNSIGNED_CHAR, MPI.SHORT, MPI.UNSIGNED_SHORT, MPI.INT]
_DATATYPES += [MPI.UNSIGNED, MPI.LONG, MPI.UNSIGNED_LONG, MPI.LONG_LONG, MPI.UNSIGNED_LONG_LONG, MPI.FLOAT, MPI.DOUBLE]
_DATATYPES += [MPI.C_BOOL, MPI.INT8_T, MPI.INT16_T, MPI.INT32_T, MPI.INT64_T, MPI.UINT8_T, MPI.UINT16_T, MPI.UINT32_T]
_DATATYPES += [MPI.UINT64_T, MPI.C_FLOAT_COMPLEX, MPI.C_DOUBLE_COMPLEX, MPI.COMPLEX, MPI.DOUBLE_COMPLEX]


@cache
def predefined() -> list[tuple[MPI.Datatype, np.dtype]]:
    """These datatypes with their dtypes, for which MPI must be initialized; MPI never frees them."""
    return [(one, dtype) for one in _DATATYPES if one != MPI.DATATYPE_NULL and (dtype := dtype_of(one))]

"""The eager limit of MPI inside a host: the longest message that is sent without waiting for the receiver.

MPI copies such a message through a queue in shared memory.  A longer one begins with a handshake, which takes longer
than another eager message.  Therefore, slightly longer messages are sent in pieces (`pycoll.compiler.pieces`).
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from functools import cache

from mpi4py import MPI

# the control variables that contain the limit, including headers
_OPEN_MPI = "btl_sm_eager_limit"
_OB1 = "pml_ob1_priority"  # exists if Open MPI uses its own queue, and not UCX
_MPICH = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE"
_NO_QUEUE = "MPIR_CVAR_NOLOCAL"  # 1 if MPICH sends messages inside a host through its network module
_HEADERS = 128  # bytes of the headers, rounded up to cache lines


@cache
def eager_limit() -> int:
    """The eager limit inside a host, in bytes without headers; 0 if MPI does not report it."""
    with contextlib.suppress(AttributeError, OSError):  # no tool interface in this library
        interface = ctypes.CDLL(MPI.__file__)
        level = MPI.Query_thread()  # Open MPI sets the thread level of the process to the level requested here
        if interface.MPI_T_init_thread(level, ctypes.byref(ctypes.c_int())) == MPI.SUCCESS:
            try:
                return max(0, _with_headers(interface) - _HEADERS)
            finally:
                interface.MPI_T_finalize()
    return 0


def _with_headers(interface: ctypes.CDLL) -> int:
    if re.search(r"MPICH Device:\s*ch4", MPI.Get_library_version()):
        return 0 if _number(interface, _NO_QUEUE) else _number(interface, _MPICH) or 0
    return 0 if _number(interface, _OB1) is None else _number(interface, _OPEN_MPI) or 0


def _number(interface: ctypes.CDLL, name: str) -> int | None:
    """The value of an integer control variable; None if the library has none of this name, or does not use it."""
    place, count, value = ctypes.c_int(), ctypes.c_int(), ctypes.c_longlong()  # room for an int or a size_t
    handle = ctypes.c_void_p()
    if interface.MPI_T_cvar_get_index(name.encode(), ctypes.byref(place)) != MPI.SUCCESS:
        return None
    if interface.MPI_T_cvar_handle_alloc(place, None, ctypes.byref(handle), ctypes.byref(count)) != MPI.SUCCESS:
        return None
    read = count.value == 1 and interface.MPI_T_cvar_read(handle, ctypes.byref(value)) == MPI.SUCCESS
    interface.MPI_T_cvar_handle_free(ctypes.byref(handle))
    return value.value if read else None

"""The control variables of the MPI library, by the tools interface of MPI (``MPI_T``), which mpi4py does not have."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_void_p

from mpi4py import MPI

LONGEST = 8192  # bytes of a description, or of a value


class ControlVariables:
    """The variables of this process, most of them integers; all ranks have to write the same values."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(MPI.__file__)  # finds the functions of the MPI library that mpi4py is linked with
        self._handles: dict[str, c_void_p] = {}
        self._values: dict[str, dict[str, int]] = {}
        level = MPI.Query_thread()  # in Open MPI, a lower level would hold for the whole process
        _checked("MPI_T_init_thread", self._library.MPI_T_init_thread(level, byref(c_int())))

    def __contains__(self, name: str) -> bool:
        return self._index(name) is not None

    def __getitem__(self, name: str) -> int:
        value = c_int()
        _checked(name, self._library.MPI_T_cvar_read(self._handle(name), byref(value)))
        return value.value

    def __setitem__(self, name: str, value: int) -> None:
        _checked(f"{name}={value}", self._library.MPI_T_cvar_write(self._handle(name), byref(c_int(value))))

    def text(self, name: str) -> str:
        """Return the value of a variable that is a string."""
        value = ctypes.create_string_buffer(LONGEST)
        _checked(name, self._library.MPI_T_cvar_read(self._handle(name), value))
        return value.value.decode()

    def values(self, name: str) -> dict[str, int]:
        """Return the values of a variable by their names.

        Open MPI lists them; MPICH has a line for each in the description, and numbers them from 0.
        """
        if name not in self._values:
            self._values[name] = self._read_values(name)
        return self._values[name]

    def _read_values(self, name: str) -> dict[str, int]:
        enumeration, description = self._info(name)
        if enumeration:
            return self._items(enumeration)
        names = [line.split(" - ")[0].strip() for line in description.splitlines() if " - " in line]
        return {name: number for number, name in enumerate(names)}

    def get(self, name: str, default: int) -> int:
        """Return the value of a variable; `default` if the library does not have it."""
        return default if self._index(name) is None else self[name]

    def _index(self, name: str) -> c_int | None:
        index = c_int()
        return index if self._library.MPI_T_cvar_get_index(name.encode(), byref(index)) == MPI.SUCCESS else None

    def _known(self, name: str) -> c_int:
        index = self._index(name)
        if index is None:
            raise KeyError(f"this MPI library has no control variable {name}")
        return index

    def _handle(self, name: str) -> c_void_p:
        if name not in self._handles:
            index, handle = self._known(name), c_void_p()
            _checked(name, self._library.MPI_T_cvar_handle_alloc(index, None, byref(handle), byref(c_int())))
            self._handles[name] = handle
        return self._handles[name]

    def _info(self, name: str) -> tuple[c_void_p, str]:
        enumeration, description = c_void_p(), ctypes.create_string_buffer(LONGEST)
        ignored = [byref(c_void_p()) for _ in range(4)]  # verbosity, datatype, binding, scope
        information = self._library.MPI_T_cvar_get_info(
            self._known(name),
            None,
            byref(c_int(0)),
            *ignored[:2],
            byref(enumeration),
            description,
            byref(c_int(LONGEST)),
            *ignored[2:],
        )
        _checked(name, information)
        return enumeration, description.value.decode()

    def _items(self, enumeration: c_void_p) -> dict[str, int]:
        count = c_int()
        self._library.MPI_T_enum_get_info(enumeration, byref(count), None, byref(c_int(0)))
        found = {}
        for number in range(count.value):
            value, name, length = c_int(), ctypes.create_string_buffer(LONGEST), c_int(LONGEST)
            self._library.MPI_T_enum_get_item(enumeration, number, byref(value), name, byref(length))
            found[name.value.decode()] = value.value
        return found


def _checked(what: str, code: int) -> None:
    if code != MPI.SUCCESS:
        raise MPI.Exception(code) from RuntimeError(f"{what}: the tools interface of MPI failed")

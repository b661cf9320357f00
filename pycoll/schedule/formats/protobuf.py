"""The encoding of Protocol Buffers, as far as traces of Chakra need it: fields with numbers, and fields with bytes.

References
----------
Protocol Buffers: Encoding.  https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

Fields = dict[int, list[int | bytes]]
_NUMBER, _FIXED64, _BYTES = 0, 1, 2


def number(value: int) -> bytes:
    """Return a varint; a negative number has 64 bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def encoded(field: int, value: int | str | bytes) -> bytes:
    """Return a field."""
    if isinstance(value, int):
        return number(field << 3 | _NUMBER) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(field << 3 | _BYTES) + number(len(data)) + data


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it."""
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("it ends in the middle of a number")


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at a position, after their length, and the position after them."""
    length, at = read_number(data, at)
    if at + length > len(data):
        raise ValueError("it ends in the middle of a message")
    return data[at : at + length], at + length


def decoded(data: bytes) -> Fields:
    """Return the values of each field of a message."""
    fields: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = read_number(data, at)
        value: int | bytes
        match key & 7:
            case 0:
                value, at = read_number(data, at)
            case 2:
                value, at = read_bytes(data, at)
            case 1 | 5 as kind:
                length = 8 if kind == _FIXED64 else 4
                value, at = data[at : at + length], at + length
            case kind:
                raise ValueError(f"a field has the unknown type {kind}")
        fields[key >> 3].append(value)
    return fields


def numbers(values: list[int | bytes]) -> Iterator[int]:
    """Yield the numbers of a repeated field, which may be packed."""
    for value in values:
        at = 0
        if isinstance(value, int):
            yield value
            continue
        while at < len(value):
            each, at = read_number(value, at)
            yield each


def text(values: list[int | bytes]) -> str:
    """Return the text of a field; empty if it is not there."""
    return values[-1].decode() if values and isinstance(values[-1], bytes) else ""

"""Damaged or malformed checkpoint files raise ValueError with the name of the file."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.parallel.checkpoint_files import MANIFEST, FilePart, part_path, read_manifest
from pycoll.parallel.flat import Piece

RIGHT = {"format": 1, "generation": "0123456789abcdef", "ranks": 2, "extra": {"epoch": 3}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoint")


def refused(folder, text, reason=""):
    (folder / MANIFEST).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"{re.escape(str(folder / MANIFEST))} is not .*{reason}"):
        read_manifest(folder)


def test_a_manifest(folder):
    (folder / MANIFEST).write_text(json.dumps(RIGHT))
    assert read_manifest(folder) == ("0123456789abcdef", 2, {"epoch": 3})


@given(JSON)
def test_any_document(folder, document):
    refused(folder, json.dumps(document))


@given(st.binary(max_size=100))
def test_any_bytes(folder, content):
    refused(folder, content)


@given(st.sampled_from(["format", "generation", "ranks"]), JSON)
def test_any_value_of_a_field(folder, field, value):
    if type(value) is type(RIGHT[field]) and (value == RIGHT[field] or (field == "ranks" and value > 0)):
        return
    refused(folder, json.dumps({**RIGHT, field: value}))


@pytest.mark.parametrize("field", RIGHT)
def test_a_missing_field(folder, field):
    refused(folder, json.dumps({name: value for name, value in RIGHT.items() if name != field}), f"no {field}")


def test_a_manifest_that_is_nested_deeply(folder):
    refused(folder, '{"format": ' + "[" * 100_000 + "]" * 100_000 + "}")


@pytest.mark.parametrize("generation", ["../outside/evil", "/tmp/0123456789a", "0123456789ABCDEF", "0" * 16 + "\n"])
def test_a_generation_outside_the_folder(folder, generation):
    refused(folder, json.dumps({**RIGHT, "generation": generation}), "hexadecimal")


VALUES = np.arange(6.0)


def write_part(folder, index=None, **about):
    index = [["parameters", "w", 0, 6, [2, 3], "float64"]] if index is None else index
    about = {"index": index, "private": {"kept": "float32"}, "steps": {"w": 4}, "outer_steps": {"w": 2}} | about
    about = json.dumps({key: value for key, value in about.items() if value is not None})
    path = part_path(folder, RIGHT["generation"], 0)
    arrays = {"0": VALUES, "private/kept": np.arange(3, dtype="f4"), "about": np.frombuffer(about.encode(), np.uint8)}
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


def contents(path):
    """Return all data that can be read from a part."""
    with FilePart(path) as part:
        (found,) = part.find("parameters", "w", Piece(0, np.empty(6), (2, 3)))
        return found.start, found.shape, found.values.tolist(), part.private()["kept"].tolist(), part.steps


def test_a_flipped_bit_in_every_byte(folder):
    """Check that a flipped bit raises an error with the file name, unless the data is unused, as archive times are."""
    path = write_part(folder)
    right, content = contents(path), path.read_bytes()
    assert right == (0, (2, 3), VALUES.tolist(), [0, 1, 2], {"optimizer": {"w": 4}, "outer": {"w": 2}})
    for place in range(len(content)):
        spoilt, bit = bytearray(content), place * 5 % 8
        spoilt[place] ^= 1 << bit
        path.write_bytes(spoilt)
        try:
            assert contents(path) == right, (place, bit)
        except ValueError as error:
            assert str(path) in str(error), (place, bit, error)


def test_a_part_that_is_cut_short(folder):
    path = write_part(folder)
    content = path.read_bytes()
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            FilePart(path)


def test_a_part_of_an_older_version(folder):
    """It has only the counters of one optimizer, and does not say whose they are."""
    with FilePart(write_part(folder, outer_steps=None)) as part:
        assert part.steps == {"optimizer": {"w": 4}, "outer": {}} and not part.own


FIELDS = ("index", "private", "steps", "outer_steps", "own")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)))
def test_any_description(folder, about):
    path = write_part(folder, **about)
    try:
        with FilePart(path) as part:
            list(part.find("parameters", "w", Piece(0, np.empty(6), (2, 3))))
            part.private()
    except ValueError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    "place",
    [
        [0, 6, [2, 2], "float64"],
        [-1, 5, [6], "float64"],
        [0, 5, [6], "float64"],
        [0, 6, [6], "float32"],
        [0, 6, [6], 8],
    ],
)
def test_a_place_that_does_not_fit(folder, place):
    path = write_part(folder, [["parameters", "w", *place]])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        contents(path)

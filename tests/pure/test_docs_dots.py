"""Dot plots in the documentation: the positions of the numbers, and a dot for each of them."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/_ext"))

import dots

BOTH = ["MPICH", "Open MPI"]


def drawn(table, one=True):
    """Return what the dots of a plot say."""
    return re.findall("<circle.*?<title>(.*?)</title>", dots.plot(table, one))


def test_each_number_has_a_dot_and_an_empty_cell_has_none():
    rows = [["`Bcast`", "3.0 / 2.0", "0.5 / 1.5"], ["Barrier", "4.0 / 5.0", ""]]
    assert drawn(dots.Table(["call", "8 B", "1 MiB"], rows, BOTH)) == [
        *("Bcast, 8 B, MPICH: 3.0", "Bcast, 8 B, Open MPI: 2.0"),
        *("Barrier, 8 B, MPICH: 4.0", "Barrier, 8 B, Open MPI: 5.0"),
        *("Bcast, 1 MiB, MPICH: 0.5", "Bcast, 1 MiB, Open MPI: 1.5"),
    ]


def test_names_come_from_several_columns_and_a_column_is_left_out():
    table = dots.Table(["network", "bytes", "ring", "us"], [["torus:64", "1 KiB", "3.0", "43"]], names=2, undrawn="us")
    assert drawn(table) == ["torus:64, 1 KiB, ring: 3.0"]


def test_positions_are_logarithmic():
    scale = dots.Scale([1.0, 4.0, 16.0])
    assert scale(16.0) - scale(4.0) == pytest.approx(scale(4.0) - scale(1.0))
    assert scale(1.0) == dots.MARGIN and scale(16.0) == 100 - dots.MARGIN
    assert scale.ticks == [1, 2, 5, 10]
    assert dots.Scale([0.1, 50.0]).ticks == [0.1, 1, 10] and dots.Scale([870, 1160]).ticks == [900, 1000, 1100]


def test_only_the_axis_of_ratios_contains_1():
    table = dots.Table(["step", "ms"], [["ring", "400"], ["tree", "900"]])
    assert 'class="one"' in dots.plot(table) and 'class="one"' not in dots.plot(table, one=False)

"""Plots of result files."""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ModuleNotFoundError("plots need matplotlib: pip install 'pycoll-mpi[bench]'")

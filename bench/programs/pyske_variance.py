"""Compute the variance of a distributed list with algorithmic skeletons: an example of PySke."""

import runpy
import sys

sys.argv[1:] = []
for _ in range(10):
    runpy.run_module("pyske.examples.list.variance")

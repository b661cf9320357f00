"""Import the benchmark, or run the module given as argument, as if threadpoolctl were not installed."""

import importlib.util as util
import runpy
import sys

found = util.find_spec
util.find_spec = lambda name, package=None: None if name == "threadpoolctl" else found(name, package)
modules = sys.argv[1:]
if not modules:
    import pycoll.bench  # noqa: F401
sys.argv = ["-m"]
for module in modules:
    runpy.run_module(module, run_name="__main__")

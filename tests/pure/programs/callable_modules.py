"""Two modules that can be called, imported before the package, from the package, or with it."""

import sys
import types

first = sys.argv[1]
if first == "import":
    import pycoll.simulate
    import pycoll.trace
elif first == "from":
    from pycoll import simulate, trace  # noqa: F401

import pycoll

loaded = [name for name in sys.modules if name.startswith(("pycoll.trace", "pycoll.simulate"))]
assert ("pycoll.trace" in loaded) if first != "with" else not loaded
for name in "trace", "simulate":
    module = getattr(pycoll, name)
    assert module is sys.modules["pycoll." + name] and isinstance(module, types.ModuleType) and callable(module)
assert pycoll.trace.phase is sys.modules["pycoll.trace"].phase
assert pycoll.simulate("barrier", algorithm="tree", ranks=2, nbytes=0).time > 0
assert "mpi4py" not in sys.modules

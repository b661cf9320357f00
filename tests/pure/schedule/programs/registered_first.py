"""Register an algorithm before anything else asks for the algorithms of the package."""

import allreduce

from pycoll.schedule.registry import algorithms_of, find

assert {"own", "ring", "recursive_doubling"} <= set(algorithms_of("allreduce"))
assert find("allreduce", "own").generator is allreduce.own
assert find("allreduce", "ring").generator.__module__ == "pycoll.primitives.allreduce"

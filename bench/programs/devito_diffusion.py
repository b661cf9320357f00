"""Diffuse heat on a grid that is divided among the ranks, as in the tutorial of Devito."""

from devito import Eq, Grid, Operator, TimeFunction, configuration, norm, solve

configuration["mpi"] = True
configuration["log-level"] = "ERROR"
grid = Grid(shape=(64, 64), extent=(2.0, 2.0))
heat = TimeFunction(name="u", grid=grid, space_order=2)
heat.data[0, 20:40, 20:40] = 1.0
step = Operator([Eq(heat.forward, solve(heat.dt - 0.1 * heat.laplace, heat.forward))])
for _ in range(20):
    step.apply(time_M=10, dt=1e-4)
    norm(heat)

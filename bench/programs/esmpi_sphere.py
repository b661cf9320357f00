"""Minimize the distance to a point by an evolution strategy, as in the documentation of esmpi."""

import numpy as np
from esmpi import CMAES_MPI

strategy = CMAES_MPI(n_params=8, population_size=16, sigma=0.5, seed=1)
for _ in range(60):
    strategy.step(lambda parameters: float(np.sum((parameters - 1.0) ** 2)))

"""Solve a stochastic program by progressive hedging: the example of the farmer of mpi-sppy."""

import mpisppy.tests.examples.farmer as farmer
from mpisppy.opt.ph import PH

names = [f"scen{number}" for number in range(12)]
options = {
    "solver_name": "appsi_highs",
    "PHIterLimit": 10,
    "defaultPHrho": 10,
    "convthresh": 1e-7,
    "verbose": False,
    "display_progress": False,
    "display_timing": False,
    "iter0_solver_options": None,
    "iterk_solver_options": None,
    "smoothed": 0,
    "asynchronousPH": False,
    "linearize_proximal_terms": True,
}
PH(options, names, farmer.scenario_creator, farmer.scenario_denouement).ph_main()

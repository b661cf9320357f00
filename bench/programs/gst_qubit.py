"""Estimate gates from simulated data by gate set tomography, as in the tutorials of pyGSTi."""

from mpi4py import MPI
from pygsti.data import simulate_data
from pygsti.modelpacks import smq1Q_XYI
from pygsti.protocols import ProtocolData, StandardGST

comm = MPI.COMM_WORLD
design = smq1Q_XYI.create_gst_experiment_design(4)
truth = smq1Q_XYI.target_model().depolarize(op_noise=0.01, spam_noise=0.01)
data = simulate_data(truth, design.all_circuits_needing_data, num_samples=1000, seed=1, comm=comm)
StandardGST("CPTPLND", verbosity=0).run(ProtocolData(design, data), memlimit=2 * 1024**3, comm=comm)

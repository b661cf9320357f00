"""Simulate the observations of a satellite, and make maps of the sky, as in the tutorial of TOAST."""

import tempfile
from datetime import datetime, timezone

import toast
import toast.ops
from astropy import units
from mpi4py import MPI
from toast.instrument_sim import fake_hexagon_focalplane
from toast.schedule_sim_satellite import create_satellite_schedule

world = MPI.COMM_WORLD
focalplane = fake_hexagon_focalplane(n_pix=7, sample_rate=10.0 * units.Hz)
telescope = toast.Telescope("fake", focalplane=focalplane, site=toast.SpaceSite("space"))
schedule = create_satellite_schedule(
    mission_start=datetime(2026, 1, 1, tzinfo=timezone.utc),
    num_observations=4,
    observation_time=5 * units.minute,
    prec_period=10 * units.minute,
    spin_period=2 * units.minute,
)
data = toast.Data(comm=toast.Comm(world=world, groupsize=world.size))
toast.ops.SimSatellite(telescope=telescope, schedule=schedule, hwp_angle=None).apply(data)
toast.ops.DefaultNoiseModel().apply(data)
toast.ops.SimNoise().apply(data)
pointing = toast.ops.PointingDetectorSimple()
binning = toast.ops.BinMap(
    pixel_pointing=toast.ops.PixelsHealpix(nside=32, detector_pointing=pointing),
    stokes_weights=toast.ops.StokesWeights(mode="IQU", detector_pointing=pointing),
    noise_model="noise_model",
)
toast.ops.MapMaker(
    det_data="signal",
    binning=binning,
    template_matrix=toast.ops.TemplateMatrix(templates=[]),
    output_dir=world.bcast(tempfile.mkdtemp()),
).apply(data)

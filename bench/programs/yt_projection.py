"""Analyze a data set in parallel: derived quantities and a projection, as in the documentation of yt."""

import yt
from yt.testing import fake_amr_ds

yt.set_log_level("error")
yt.enable_parallelism()
data = fake_amr_ds(fields=["density"], units=["g/cm**3"])
everything = data.all_data()
everything.quantities.extrema(("gas", "density"))
everything.quantities.total_quantity([("gas", "density")])
everything.quantities.weighted_average_quantity(("gas", "density"), ("gas", "cell_mass"))
data.proj(("gas", "density"), 0)
yt.create_profile(everything, ("gas", "density"), ("gas", "cell_mass"), weight_field=None)
for _ in yt.parallel_objects(range(8)):
    pass

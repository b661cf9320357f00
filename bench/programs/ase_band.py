"""Find a barrier with the nudged elastic band in parallel, an image on each rank, as in the tutorial of ASE."""

from ase.build import add_adsorbate, fcc100
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.mep import NEB
from ase.optimize import BFGS
from ase.parallel import world

first = fcc100("Al", size=(2, 2, 3))
add_adsorbate(first, "Au", 1.7, "hollow")
first.center(axis=2, vacuum=4.0)
first.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in first]))
last = first.copy()
last[-1].x += last.get_cell()[0, 0] / 2
for end in (first, last):
    end.calc = EMT()
    BFGS(end, logfile=None).run(fmax=0.05)
images = [first, *(first.copy() for _ in range(world.size)), last]
for image in images[1:-1]:
    image.calc = EMT()
band = NEB(images, parallel=True)
band.interpolate()
BFGS(band, logfile=None).run(fmax=0.1, steps=30)

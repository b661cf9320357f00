"""List the packages: pycoll/, and bench/ as pycoll.bench.  All other metadata is in setup.cfg."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["pycoll", "pycoll.*"]),
        "pycoll.bench",
        *(f"pycoll.bench.{name}" for name in find_packages("bench")),
    ],
    package_dir={"pycoll.bench": "bench"},
)

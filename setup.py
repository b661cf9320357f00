"""List the packages: pycoll/, and slurm/, which has no modules; build the compiled modules.

Other metadata is in setup.cfg.
"""

import configparser
import os
import re
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext


class BuildCore(build_ext):
    """Builds the core; `python` in the checkout imports the package there, so the core is copied there too."""

    def finalize_options(self):
        """Compile on all cores."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self):
        """Build all extensions that the compiler can build."""
        super().run()
        self.copy_extensions_to_source()


def description():
    """The README for an index page, which has no other files: links go to the `url` of setup.cfg, if there is one."""
    config = configparser.ConfigParser()
    config.read("setup.cfg")
    url = config["metadata"].get("url", "").rstrip("/")

    def link(match):
        picture, text, target = match.groups()
        if re.match(r"https?://|#", target):
            return match[0]
        if not url:
            return "" if picture else text
        return f"{picture}[{text}]({url}/{'raw' if picture else 'blob'}/main/{target})"

    return re.sub(r"(!?)\[([^]]*)\]\(([^)]*)\)", link, Path("README.md").read_text())


CORE = ["pairs", "steps", "waiting", "slots", "peer_addresses", "messages", "in_flight", "front", "values", "objects"]

MODULES = [*(f"core/{name}" for name in CORE), "simulate/events"]

compiled = cythonize(
    [
        Extension(
            f"pycoll/{name}".replace("/", "."),
            [f"pycoll/{name}.pyx"],
            include_dirs=[numpy.get_include(), "pycoll/core"],
            depends=["pycoll/core/atomics.h", "pycoll/core/copies.h", "pycoll/core/mailboxes.h"],
            extra_compile_args=["-O3", "-ffp-contract=off"],  # as Python: no fused multiply and add
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        )
        for name in MODULES
    ],
    build_dir="build",
)
for extension in compiled:
    extension.optional = True  # without a compiler, the package is installed all the same

setup(
    long_description=description(),
    packages=[*find_packages(include=["pycoll", "pycoll.*"]), "pycoll.job_scripts"],
    package_dir={"pycoll.job_scripts": "slurm"},
    ext_modules=compiled,
    cmdclass={"build_ext": BuildCore},
)

"""The recipe of pycoll for Spack."""

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import depends_on, license, version


class PyPycollMpi(PythonPackage):
    """Collective communication in several algorithms, over the messages of mpi4py."""

    pypi = "pycoll-mpi/pycoll_mpi-0.1.0.tar.gz"

    license("MIT")

    # the checksum is filled in at the release
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    depends_on("c", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@61:", type="build")
    depends_on("py-cython@3:", type="build")
    depends_on("py-numpy@2:", type=("build", "link", "run"))
    depends_on("py-mpi4py@4:", type=("build", "run"))
    depends_on("py-lazy-loader@0.4:", type=("build", "run"))
    depends_on("py-tabulate", type=("build", "run"))

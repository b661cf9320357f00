"""Write rules that select these algorithms for so many ranks, each for its own sizes.

``forged.py DIRECTORY LIBRARY RANKS PRIMITIVE ALGORITHM [PRIMITIVE ALGORITHM ...]``; an algorithm may be ``all``.
"""

import sys
from pathlib import Path

from mpi4py import MPI

from pycoll.tune.export import document
from pycoll.tune.export.command import LIBRARIES

folder, which, ranks, *names = sys.argv[1:]
target, library = Path(folder), LIBRARIES[which][1](MPI.COMM_WORLD)
primitives = {}
for primitive, algorithm in zip(names[::2], names[1::2]):
    chosen = library.algorithms(primitive, 1 << 20) if algorithm == "all" else [algorithm]
    primitives[primitive] = [
        {"nbytes": 8 + 1024 * number, "most": 1023 * (number + 1), "selected": each}
        for number, each in enumerate(chosen)
    ]
measurement = {"ranks": int(ranks), "hosts": 1, "environment": {}, "primitives": primitives}
document.write(library, target, document.with_measurement(document.existing(target), measurement))

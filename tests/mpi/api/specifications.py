"""Calls of `pycoll.Comm` with all kinds of buffer specifications, compared with the same calls of mpi4py."""

import numpy as np
from mpi4py import MPI

import pycoll
from tests.mpi.native import RANK, SIZE, WORLD

OURS, THEIRS = pycoll.Comm(WORLD), WORLD.Dup()

MOVES = ["Bcast", "Scatter", "Gather", "Allgather", "Alltoall", "Scatterv", "Gatherv", "Allgatherv", "Alltoallv"]
REDUCTIONS = ["Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"]
METHODS = [*MOVES, *REDUCTIONS]
ROOTED = ["Bcast", "Scatter", "Gather", "Scatterv", "Gatherv", "Reduce"]
FORMS = ["blocking", "nonblocking", "persistent"]

# functions from memory, count(s), displacement(s) and datatype to a buffer specification
STYLES = {
    "buf": lambda b, c, d, t: b,
    "[buf, type]": lambda b, c, d, t: [b, t],
    "[buf, code]": lambda b, c, d, t: [b, "i"],
    "[buf, count]": lambda b, c, d, t: [b, c],
    "[buf, count, type]": lambda b, c, d, t: [b, c, t],
    "[buf, count, code]": lambda b, c, d, t: (b, c, "i"),
    "[buf, (count, displ)]": lambda b, c, d, t: [b, (c, d)],
    "[buf, (count, displ), type]": lambda b, c, d, t: (b, (c, d), t),
    "[buf, count, displ, type]": lambda b, c, d, t: [b, c, d, t],
    "[buf, count, displ, code]": lambda b, c, d, t: [b, c, d, "i"],
}
VECTOR_STYLES = [style for style in STYLES if "count" in style]
TYPED = "[buf, (count, displ), type]"

INT = MPI.INT
# ints in several layouts; most have two ints in each element
TYPES = {
    "int": INT,
    "dup": INT.Dup(),
    "contiguous": INT.Create_contiguous(2),
    "contiguous twice": INT.Create_contiguous(1).Create_contiguous(2),
    "vector": INT.Create_vector(2, 1, 2),
    "indexed": INT.Create_indexed([1, 1], [1, 3]),
    "reversed": INT.Create_indexed([1, 1], [1, 0]),
    "resized": INT.Create_contiguous(2).Create_resized(0, 16),
    "shifted": INT.Create_contiguous(2).Create_resized(-4, 12),
    "struct": MPI.Datatype.Create_struct([1, 1], [0, 8], [INT, INT]),
    "subarray": INT.Create_subarray([2, 3], [2, 1], [0, 1]),
}
for _name in list(TYPES)[1:]:
    TYPES[_name].Commit()


def side(style, ints, name, vector, gap=1):
    """Return a specification of blocks with these numbers of ints, and its memory; displacements descend with rank."""
    datatype = TYPES[name]
    counts = [n * INT.size // datatype.size for n in ints]
    count, displ, end = counts[0], 0, sum(counts)
    if "displ" in style and vector:
        displ, end = [0] * len(counts), gap
        for i in reversed(range(len(counts))):
            displ[i] = end
            end += counts[i] + gap
    elif "displ" in style:
        displ = gap
        end += gap
    slack = 16 if "count" in style else 0
    memory = np.random.default_rng([RANK, len(ints)]).integers(
        -9, 9, (end * datatype.extent + slack) // INT.size, np.intc
    )
    return STYLES[style](memory, counts if vector else count, displ, datatype), memory


def call_of(method, rank, style="buf", types=("int", "int"), root=0, counts=None, gap=1, inside=False, marker=None):
    """Return the arguments of a method, and the memory that the call may read or change.

    `counts` has the number of pairs of ints for each rank; with `inside`, `marker` replaces the buffer for which
    MPI.IN_PLACE stands.
    """
    counts = [2 * n for n in counts or [(5 * r + 1) % 4 for r in range(SIZE)]]
    if not (method.endswith("v") or method == "Reduce_scatter"):
        counts = [max(counts)] * SIZE
    own, at_root, total = [counts[rank]], rank == root, [sum(counts)]
    step = 1 if inside else 2  # in place, ranks send as much as they receive
    sends, receives = {
        "Bcast": (own, own),
        "Scatter": (counts, own),
        "Gather": (own, counts),
        "Allgather": (own, counts),
        "Alltoall": (
            [counts[(rank + step * other) % SIZE] for other in range(SIZE)],
            [counts[(other + step * rank) % SIZE] for other in range(SIZE)],
        ),
        "Reduce_scatter": (total, total if inside else own),
        "Reduce_scatter_block": (counts, counts if inside else own),
    }.get(method.removesuffix("v"), (own, own))
    vector = method.endswith("v")
    send, sent = side(style, sends, types[0], vector and "Gather" not in method and "gather" not in method, gap)
    recv, received = side(style, receives, types[1], vector and "Scatter" not in method, gap)
    if method == "Bcast":
        return [send if at_root else recv, root], [sent if at_root else received]
    if inside and "Scatter" in method:
        recv = marker if at_root else recv
    elif inside and (at_root or method not in ROOTED):
        send = marker
    if method in ROOTED and not at_root:
        send, recv = (None, recv) if "Scatter" in method else (send, None)
    arguments = [send, recv]
    if inside and "Reduce_scatter" in method:  # the contents after the block are undefined
        start = gap if "displ" in style else 0
        received = received[start : start + own[0]]
    if method == "Reduce_scatter":
        arguments.append(counts)
    if method in REDUCTIONS:
        arguments.append(MPI.SUM)
    if method in ROOTED:
        arguments.append(root)
    return arguments, [sent, received]


def run(comm, method, form, arguments, **options):
    if form == "blocking":
        assert getattr(comm, method)(*arguments, **options) is None
    elif form == "nonblocking":
        getattr(comm, f"I{method.lower()}")(*arguments, **options).Wait()
    else:
        request = getattr(comm, f"{method}_init")(*arguments, **options)
        request.Start()
        request.Wait()
        request.Free()


def check(method, make, forms=("blocking",), algorithms=(None,), comms=(OURS, THEIRS)):
    """Compare a call in these forms and with these algorithms with the blocking call of mpi4py."""
    ours, theirs = comms
    arguments, expected = make()
    getattr(theirs, method)(*arguments)
    for algorithm in algorithms:
        for form in forms:
            arguments, memory = make()
            run(ours, method, form, arguments, **({"algorithm": algorithm} if algorithm else {}))
            for one, other in zip(memory, expected):
                np.testing.assert_array_equal(one, other, f"{method} {form} {algorithm}")


def styles_of(method):
    return VECTOR_STYLES if method.endswith("v") else list(STYLES)

"""Made-up result files."""

SIZES = (8, 1024, 1 << 20)


def record(algorithm, size, median, primitive="allreduce", **others):
    native = None if algorithm == "mpi" else 10.0
    values = {"place": "out", "form": "blocking", "datatype": "float32", "op": "sum", "root": None, "wrong": 0}
    bandwidth = size / median / 1e3 if median else None
    times = {"median": median, "busbw": bandwidth, "native": native}
    times |= {"min": median and median / 2, "p99": median and median * 3}
    return {"primitive": primitive, "algorithm": algorithm, "bytes": size, **values, **times, **others}


def document(ranks=4, commit="e027819", records=None, speed=1.0, **environment):
    where = {"ranks": ranks, "hosts": ["n1", "n2"], "mpi": "MPICH 5", "cpu": "EPYC", "commit": commit, "gpu": None}
    where["cores"] = 8
    if records is None:
        tree = [record("tree", size, median / speed) for size, median in zip(SIZES, (5.0, 8.0, 400.0))]
        ring = [record("ring", size, median / speed) for size, median in zip(SIZES, (9.0, 12.0, 100.0))]
        records = [*tree, *ring, *(record("mpi", size, 10.0) for size in SIZES)]
    return {"format": "pycoll bench", "version": 1, "environment": where | environment, "records": records}

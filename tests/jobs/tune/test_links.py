"""Links measured between all pairs of ranks are a topology for searches and simulations."""

import pycoll
from pycoll.base.links import read
from tests.launch import run


def test_links_of_four_ranks(tmp_path):
    path = tmp_path / "links.json"
    job = run(4, ["-m", "pycoll.tune", "--links", "-o", str(path)])
    assert job.code == 0 and f"written to {path}" in job.output, job.output
    links = read(path)
    assert links.keys() == {(here, there) for here in range(4) for there in range(4) if here != there}
    assert all(0 < times.alpha < 1 and 0 < times.beta < 1e-6 for times in links.values())
    found = pycoll.synthesize(str(path), "allreduce", nbytes=1 << 20, seeds=1)
    ring = pycoll.simulate("allreduce", algorithm="ring", ranks=4, nbytes=1 << 20, topology=str(path))
    assert 0 < found.bound < min(found.time, ring.time)


def test_wrong_options(tmp_path):
    for options, why in (
        (["allreduce"], "a primitive"),
        (["--export", "mpich"], "--export"),
    ):
        job = run(2, ["-m", "pycoll.tune", "--links", *options])
        assert job.code == 2 and f"--links cannot be combined with {why}" in job.output, job.output

"""The domains of the machine that a process runs in, by the files in /sys or as given."""

import os

import pytest

from pycoll.base import domains
from pycoll.base.domains import UNKNOWN, by_system, given


@pytest.fixture
def machine(tmp_path):
    """Write the files of a machine of 2 sockets, each with 2 NUMA domains of 2 cores and 2 threads each, one cache."""
    for cpu in range(16):
        core = cpu % 8  # CPUs 8 to 15 are the second threads
        topology = tmp_path / f"cpu/cpu{cpu}/topology"
        cache = tmp_path / f"cpu/cpu{cpu}/cache/index3"
        topology.mkdir(parents=True)
        cache.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{core // 4}\n")
        (topology / "core_siblings_list").write_text("0-3,8-11\n" if core < 4 else "4-7,12-15\n")
        (cache / "shared_cpu_list").write_text("0-3,8-11\n" if core < 4 else "4-7,12-15\n")
    for node in range(4):
        folder = tmp_path / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{2 * node}-{2 * node + 1},{2 * node + 8}-{2 * node + 9}\n")
    (tmp_path / "node/online").write_text("0-3\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ({0}, (0, 0, 0)),
        ({2, 10}, (0, 1, 0)),
        ({6, 7}, (1, 3, 4)),
        ({4, 5, 6}, (1, UNKNOWN, 4)),
        ({3, 4}, (UNKNOWN, UNKNOWN, UNKNOWN)),
        (set(range(16)), (UNKNOWN, UNKNOWN, UNKNOWN)),
    ],
)
def test_a_process_is_in_the_domains_of_its_cpus(machine, cpus, expected):
    assert by_system(str(machine), frozenset(cpus)) == expected


def test_a_system_that_says_nothing(tmp_path):
    assert by_system(str(tmp_path), frozenset({0, 1})) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert by_system(str(tmp_path), frozenset()) == (UNKNOWN, UNKNOWN, UNKNOWN)


def test_a_machine_that_numbers_its_socket_minus_one(machine):
    for path in machine.glob("cpu/cpu*/topology/physical_package_id"):
        path.write_text("-1\n")
    assert by_system(str(machine), frozenset({2, 10})) == (UNKNOWN, 1, 0)


def test_what_is_given():
    assert given("") == {} and given("socket=1,numa=12") == {"socket": 1, "numa": 12}
    for wrong in ("numa", "numa=x", "numa=-1", "core=1", "numa:1", "numa=99999999999"):
        with pytest.raises(ValueError, match=f"PYCOLL_PLACE='{wrong}' is not of the form socket=0,numa=0,l3=0"):
            given(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not bound to a domain of its host"),
        ("socket=1,l3=0", "socket 1, l3 0"),
        ("numa", "environment variable PYCOLL_PLACE='numa' is not of the form socket=0,numa=0,l3=0"),
    ],
)
def test_the_domains_in_words(monkeypatch, text, expected):
    monkeypatch.setenv(domains.VARIABLE, text)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    domains.domains.cache_clear()
    assert domains.in_words() == expected
    domains.domains.cache_clear()

"""Tuning files: the algorithms that they select, and invalid files."""

import copy
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pycoll.selection import tuning_file
from pycoll.selection.choices import Choices, algorithm_from_environment
from pycoll.selection.rules import REGISTERED_FROM, choose
from pycoll.selection.select import BY_MEASUREMENT, CommFacts, SelectionKey, registered_limit, select
from pycoll.selection.tuning_file import Candidate

POINTS = [
    {"nbytes": 8, "seconds": {"ring": 4e-6, "recursive_doubling": 2e-6, "native": 1e-6}},
    {"nbytes": 1024, "seconds": {"ring": 4e-6, "recursive_doubling": 8e-6, "native": 64e-6}},
    {"nbytes": 65536, "seconds": {"ring": 40e-6, "ring/4096": 20e-6, "recursive_doubling": 64e-6, "native": 64e-6}},
]
SHARED = [{**point, "registered": time} for point, time in zip(POINTS, (2e-6, 3e-6, 9e-6))]  # slower for 8 bytes
MEASUREMENT = {"mpi": "MPI 1", "ranks": 4, "hosts": 1, "environment": {}, "primitives": {"allreduce": POINTS}}


def document(**changes):
    return {"format": "pycoll tuning", "version": 1, "measurements": [copy.deepcopy(MEASUREMENT)], **changes}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tuning_file.json"
    path.write_text(json.dumps(document()))
    return tuning_file.read(path)


@pytest.mark.parametrize(
    "nbytes, expected",
    [(0, "native"), (8, "native"), (1024, "ring"), (65536, "ring/4096"), (130000, "ring/4096"), (4, "native")],
)
def test_the_fastest_at_measured_sizes_and_beyond(file, nbytes, expected):
    assert str(file.fitting("MPI 1", 4, 1).best("allreduce", nbytes, True, True, "naive")) == expected


def test_numbers_in_names(tmp_path, monkeypatch):
    """Check that a tuning file and the environment may name numbers that the catalogue does not list."""
    path = tmp_path / "tuning_file.json"
    path.write_text(json.dumps(document()).replace('"ring/4096"', '"recursive_multiplying:6/4096"'))
    tuned = tuning_file.read(path).fitting("MPI 1", 4, 1)
    assert tuned.best("allreduce", 65536, True, True, "naive") == Candidate("recursive_multiplying:6", 4096)
    choices = Choices()
    choices["Bcast"] = "knomial:6"
    assert choices["bcast"] == "knomial:6"
    with pytest.raises(ValueError, match="'0' is not an integer of at least 2"):
        choices["Bcast"] = "knomial:0"
    monkeypatch.setenv("PYCOLL_REDUCE", "knomial:7")
    algorithm_from_environment.cache_clear()
    key = SelectionKey("reduce", 8, True)
    assert select(None, key, CommFacts((0,) * 4), Choices(), None).algorithm == "knomial:7"
    algorithm_from_environment.cache_clear()


def test_far_beyond_what_was_measured_the_rules_hold(file):
    tuned = file.fitting("MPI 1", 4, 1)
    assert tuned.best("allreduce", 1 << 18, True, True, "naive") is None
    part = tuning_file.TuningFile(
        file.path, {"measurements": [{**MEASUREMENT, "primitives": {"allreduce": POINTS[1:]}}]}
    )
    assert part.fitting("MPI 1", 4, 1).best("allreduce", 8, True, True, "naive") is None
    assert part.fitting("MPI 1", 4, 1).best("allreduce", 600, True, True, "naive")


def test_what_the_rules_say_is_kept_if_it_is_as_good(file):
    tuned = file.fitting("MPI 1", 4, 1)
    assert str(tuned.best("allreduce", 64, True, False, "ring")) == "recursive_doubling"
    assert str(tuned.best("allreduce", 88, True, False, "ring")) == "ring"
    assert str(tuned.best("allreduce", 92, True, False, "recursive_doubling")) == "recursive_doubling"


def with_shared_memory(seconds):
    points = [{"nbytes": 8, "seconds": {"naive": 3e-6, "native": 2e-6, "shared_memory": seconds}}]
    measurement = {**MEASUREMENT, "primitives": {"allreduce": points}}
    return tuning_file.TuningFile(Path("made-up"), {"measurements": [measurement]}).fitting("MPI 1", 4, 1)


@pytest.mark.parametrize("seconds, chosen", [(1e-6, True), (2.05e-6, True), (2.5e-6, False)])
def test_shared_memory_is_measured_like_an_algorithm(seconds, chosen):
    key, tuned = SelectionKey("allreduce", 8, native=True, slots=True), with_shared_memory(seconds)
    choice = select(None, key, CommFacts((0,) * 4), Choices(), tuned)
    assert (choice.slots, choice.algorithm) == ((True, "naive") if chosen else (False, "native"))
    assert choice.reason.startswith("by the rules, and measured" if chosen else "measured to be the fastest")
    elsewhere = select(None, key._replace(slots=False), CommFacts((0,) * 4), Choices(), tuned)
    assert (elsewhere.slots, elsewhere.algorithm) == (False, "native")


def test_without_times_of_shared_memory_the_rules_hold_for_it(file):
    key = SelectionKey("allreduce", 8, native=True, slots=True)
    choice = select(None, key, CommFacts((0,) * 4), Choices(), file.fitting("MPI 1", 4, 1))
    assert choice.slots and choice.reason.startswith("by the rules inside a host")
    choice = select(None, key._replace(slots=False), CommFacts((0,) * 4), Choices(), file.fitting("MPI 1", 4, 1))
    assert choice.algorithm == "native"


def test_between_sizes_times_are_interpolated(file):
    tuned = file.fitting("MPI 1", 4, 1)
    times = tuned.times("allreduce", 90)  # halfway between 8 and 1024 on a logarithmic scale
    assert times[Candidate("ring")] == pytest.approx(4e-6)
    assert times[Candidate("recursive_doubling")] == pytest.approx(4e-6, rel=0.01)
    assert times[Candidate("native")] == pytest.approx(8e-6, rel=0.01)
    assert Candidate("ring", 4096) not in tuned.times("allreduce", 2048), "measured on one side alone"
    assert str(tuned.best("allreduce", 60, True, False, "naive")) == "recursive_doubling"
    assert str(tuned.best("allreduce", 120, True, False, "naive")) == "ring"


def test_what_may_not_run_is_not_chosen(file):
    tuned = file.fitting("MPI 1", 4, 1)
    assert str(tuned.best("allreduce", 8, True, False, "naive")) == "recursive_doubling"
    assert str(tuned.best("allreduce", 65536, False, False, "naive")) == "recursive_doubling", (
        "the ring keeps no rank order"
    )
    assert tuned.best("bcast", 8, True, True, "naive") is None


def measured(points):
    """Return a measurement of these points."""
    one = {**MEASUREMENT, "primitives": {"allreduce": points}}
    return tuning_file.TuningFile(Path("tuning_file.json"), {"measurements": [one]}).fitting("MPI 1", 4, 1)


@pytest.mark.parametrize(
    "times, limit",
    [
        ((2e-6, 3e-6, 9e-6), 1024),
        ((2e-6, 9e-6, 9e-6), 65536),
        ((5e-7, 3e-6, 9e-6), 8),
        ((2e-6, 9e-6, 3e-5), 131072),  # from where nothing was measured
        ((5e-7, 5e-5, 9e-6), 8),  # one point in the noise
        ((None, 3e-6, 9e-6), 1000),  # the rules hold below the shortest measured one
        ((2e-6, 3e-6, None), 1024),
        ((None, None, None), None),
    ],
)
def test_the_size_from_which_registered_buffers_are_faster(times, limit):
    points = [{**point, "registered": time} for point, time in zip(POINTS, times)]
    assert measured(points).registered_from("allreduce", 1000) == limit
    assert measured(points).registered_from("bcast", 1000) is None


def test_registered_memory_changes_no_times(file):
    tuned, shared = file.fitting("MPI 1", 4, 1), measured(SHARED)
    for nbytes in (0, 8, 90, 1024, 65536, 1 << 18):
        assert shared.times("allreduce", nbytes) == tuned.times("allreduce", nbytes)
    assert tuned.registered_from("allreduce", 1000) is None, "a file without such measurements"


def chosen(tuned, nbytes, **known):
    key = SelectionKey("allreduce", nbytes, native=True, **known)
    return select(None, key, CommFacts((0,) * 4), Choices(), tuned)


def test_native_is_not_chosen_where_registered_buffers_are_faster():
    seconds = {"ring": 4e-6, "native": 3.5e-6}
    old = [{"nbytes": nbytes, "seconds": seconds} for nbytes in (1024, 4096)]
    new = [{**point, "registered": time} for point, time in zip(old, (9e-6, 3e-6))]
    assert chosen(measured(new), 4096).algorithm == "native", "on ordinary memory"
    assert chosen(measured(new), 1024, registered=True).algorithm == "native"
    choice = chosen(measured(new), 4096, registered=True, from_comm=True)
    assert choice.algorithm == "ring"
    assert choice.reason.endswith("without native; registered buffers were measured to be faster from 4096 bytes")
    assert chosen(measured(old), 4096, registered=True).algorithm == "native", "a file without such measurements"


def test_the_limit_of_registered_buffers():
    assert registered_limit("allreduce", measured(SHARED)) == (1024, BY_MEASUREMENT)
    for tuned in (None, measured(POINTS)):
        assert registered_limit("allreduce", tuned) == (REGISTERED_FROM, "by the rules")


def test_a_measurement_holds_for_its_own_ranks_hosts_and_library(file):
    assert file.fitting("MPI 1", 2, 1) is None
    assert file.fitting("MPI 1", 4, 2) is None
    assert file.fitting("MPI 2", 4, 1) is None


def test_a_new_measurement_replaces_one_of_its_kind(file):
    new = {**MEASUREMENT, "primitives": {"bcast": [{"nbytes": 8, "seconds": {"tree": 1e-6}}]}}
    elsewhere = {**new, "environment": {"cpu": "another"}}
    assert file.with_measurement(elsewhere)["measurements"] == [elsewhere]
    (both,) = file.with_measurement({**new, "environment": {"date": "later"}})["measurements"]
    assert both["environment"] == {"date": "later"}
    assert both["primitives"] == {"allreduce": POINTS, **new["primitives"]}, "measured under the same circumstances"
    again = {"nbytes": 1024, "seconds": {"tree": 1e-6}}
    (merged,) = file.with_measurement({**MEASUREMENT, "primitives": {"allreduce": [again]}})["measurements"]
    assert merged["primitives"]["allreduce"] == [POINTS[0], again, POINTS[2]]
    other = {**new, "ranks": 2}
    assert file.with_measurement(other)["measurements"] == [MEASUREMENT, other]
    assert tuning_file.empty(file.path).with_measurement(new)["measurements"] == [new]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("{", "not JSON"),
        ("\0\xff", "not JSON"),
        ("[]", "not a tuning file"),
        ('{"format": "pycoll bench", "version": 1}', "not a tuning file"),
        (json.dumps(document(version=2)), "version 2"),
        ("[" * 100_000, "nested too deeply"),
        *((json.dumps(document(measurements=wrong)), "its measurements are not a list") for wrong in (None, 5, {}, "")),
        (json.dumps({"format": "pycoll tuning", "version": 1}), "its measurements are not a list"),
        *(
            (json.dumps(document(measurements=[wrong])), f"measurement 0 is broken: {re.escape(why)}$")
            for wrong, why in [
                (5, "it is 5, not an object"),
                ([], "it is [], not an object"),
                ({}, "it has no 'mpi'"),
                ({**MEASUREMENT, "ranks": "4"}, "its 'ranks' is '4', not an integer"),
                ({**MEASUREMENT, "environment": None}, "its 'environment' is None, not an object"),
                ({**MEASUREMENT, "primitives": []}, "its 'primitives' is [], not an object"),
                ({**MEASUREMENT, "primitives": {"bcast": 5}}, "the points of bcast are 5, not a list"),
                ({**MEASUREMENT, "primitives": {"bcast": [8]}}, "a point of bcast is 8, not an object"),
                ({**MEASUREMENT, "primitives": {"bcast": [{}]}}, "a point of bcast has no 'nbytes'"),
                ({**MEASUREMENT, "primitives": {"bcast": [{"nbytes": 8}]}}, "a point of bcast has no 'seconds'"),
                (
                    {**MEASUREMENT, "primitives": {"bcast": [{"nbytes": 8, "seconds": 1.0}]}},
                    "the 'seconds' of a point of bcast is 1.0, not an object",
                ),
                (
                    {**MEASUREMENT, "primitives": {"bcast": [{"nbytes": 8, "seconds": {"ring/much": 1.0}}]}},
                    "a point of bcast has 'ring/much', which is not an algorithm/segment",
                ),
            ]
        ),
        (
            json.dumps(document(measurements=[MEASUREMENT, {"mpi": "MPI 1"}])),
            "measurement 1 is broken: it has no 'ranks'",
        ),
        (json.dumps(document()).replace("allreduce", "allredcue"), "'allredcue' is not one of: bcast"),
        (json.dumps(document()).replace("allreduce", "alltoallv"), "alltoallv"),
        (json.dumps(document()).replace('"ring"', '"rings"'), "allreduce has no rings"),
        (json.dumps(document()).replace("ring/4096", "ring/0"), "allreduce has no ring/0"),
        (json.dumps(document()).replace('"ring"', '"knomial:1"'), "allreduce has no knomial:1"),
        (json.dumps(document()).replace("ring/4096", "ring/much"), "broken"),
        (json.dumps(document()).replace("2e-06", "-2e-06"), "-2e-06 seconds"),
        (json.dumps(document()).replace("2e-06", '"fast"'), "fast"),
        (json.dumps(document()).replace("2e-06", "NaN"), "nan"),
        *(
            (json.dumps(document()).replace('"nbytes": 8,', f'"nbytes": 8, "registered": {wrong},'), why)
            for wrong, why in [
                ("-1e-06", "the time of registered buffers for allreduce of 8 bytes is -1e-06 seconds"),
                ("0.0", "registered buffers for allreduce of 8 bytes is 0.0 seconds"),
                ("{}", "registered buffers for allreduce of 8 bytes is {} seconds"),
                ("Infinity", "registered buffers for allreduce of 8 bytes is inf seconds"),
            ]
        ),
        (json.dumps(document()).replace("1024", "8"), "sizes of allreduce"),
        (json.dumps(document()).replace("1024", "10.24"), "sizes of allreduce"),
        (json.dumps(document()).replace("65536", "1" + "0" * 400), "sizes of allreduce"),
        (json.dumps(document()).replace("8,", "-8,", 1), "sizes of allreduce"),
    ],
)
def test_broken_and_foreign_files_are_refused(tmp_path, text, reason):
    path = tmp_path / "tuning_file.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(tuning_file.InvalidTuningFile, match=reason):
        tuning_file.read(path)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, way=()):
    """Yield the path to each value in a JSON document."""
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*way, key))


def replaced(value, way, other):
    """Return a copy of the document with one value replaced."""
    if not way:
        return other
    changed = copy.copy(value)
    changed[way[0]] = replaced(value[way[0]], way[1:], other)
    return changed


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500)
@given(data=st.data(), other=anything | st.sampled_from([POINTS, MEASUREMENT, {"allreduce": POINTS}]))
def test_whatever_is_in_a_file_it_is_used_or_refused(tmp_path, data, other):
    whole = document(measurements=[{**MEASUREMENT, "primitives": {"allreduce": SHARED}}])
    text = json.dumps(replaced(whole, data.draw(st.sampled_from(list(places(whole)))), other))
    path = tmp_path / "tuning_file.json"
    path.write_text(text)
    try:
        file = tuning_file.read(path)
    except tuning_file.InvalidTuningFile:
        return
    assert all(isinstance(name, str) for name in file.libraries())
    tuned = file.fitting("MPI 1", 4, 1)
    for nbytes in (0, 8, 90, 1 << 16, 1 << 30):
        best = tuned and tuned.best("allreduce", nbytes, True, True, "naive")
        assert best is None or best.algorithm in ("ring", "recursive_doubling", "native")
    limit = tuned and tuned.registered_from("allreduce", 1000)
    assert limit is None or 0 <= limit < 1 << 64
    file.with_measurement(MEASUREMENT)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(tuning_file.InvalidTuningFile, match="cannot be read"):
        tuning_file.read(tmp_path / "none.json")


def test_where_the_file_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PYCOLL_TUNING", raising=False)
    assert tuning_file.path_in_use() is None
    mine = tmp_path / "pycoll" / "tuning.json"
    mine.parent.mkdir()
    mine.write_text("{}")
    assert tuning_file.path_in_use() == mine
    monkeypatch.setenv("PYCOLL_TUNING", str(tmp_path / "other.json"))
    assert tuning_file.path_in_use() == tmp_path / "other.json"
    monkeypatch.setenv("PYCOLL_TUNING", "off")
    assert tuning_file.path_in_use() is None


def test_rules_never_choose_mpis_own():
    assert all(choose("allreduce", 1 << power, 4) != "native" for power in range(27))


def test_users_without_a_home_directory(monkeypatch):
    for name in ("PYCOLL_TUNING", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for unknown users
    assert tuning_file.path_in_use() is None
    assert tuning_file.default_path() == Path("~/.config/pycoll/tuning.json")


def test_a_home_directory_that_cannot_be_read(monkeypatch, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.delenv("PYCOLL_TUNING", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "loop"))
    assert tuning_file.path_in_use() is None

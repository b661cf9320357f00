"""The directory of exported rules: what is in it, what is added to it, and what is refused."""

import json

import pytest

from pycoll.runtime import native
from pycoll.tune.export import document
from pycoll.tune.export.rules import Range

pytestmark = pytest.mark.mpi


def point(least, most, selected):
    return {"least": least, "most": most, "selected": selected, "gain": 1.5, "seconds": {}}


def measurement(ranks, hosts=1, **primitives):
    return {"ranks": ranks, "hosts": hosts, "environment": {}, "primitives": primitives}


class TextLibrary:
    """A library whose only file is the rules as text."""

    def files(self, rules, on_several_hosts):
        return {"rules.txt": f"{rules} {on_several_hosts}"}

    def variables(self, paths):
        return {f"VARIABLE_{number}": path for number, path in enumerate(paths.values())}


def test_neighboring_sizes_with_one_algorithm_are_one_range(tmp_path):
    points = [point(1, 7, "a"), point(8, 15, "a"), point(16, 31, None), point(32, 63, "a"), point(64, 99, "b")]
    found = document.with_measurement(document.existing(tmp_path), measurement(4, bcast=points, reduce=points[2:3]))
    assert document.rules(found) == {"bcast": {4: [Range(1, 15, "a"), Range(32, 63, "a"), Range(64, 99, "b")]}}


def test_measurements_are_added(tmp_path):
    first = measurement(4, bcast=[point(1, 7, "a")], reduce=[point(1, 7, "a")])
    found = document.with_measurement(document.existing(tmp_path), first)
    found = document.with_measurement(found, measurement(8, bcast=[point(1, 7, "b")]))
    found = document.with_measurement(found, measurement(4, bcast=[point(1, 7, "c")]))
    a, b, c = ([Range(1, 7, name)] for name in "abc")
    assert document.rules(found) == {"bcast": {8: b, 4: c}, "reduce": {4: a}}
    found = document.with_measurement(found, measurement(4, 2, bcast=[point(1, 7, None)]))
    assert document.rules(found) == {"bcast": {8: b}}, "those of another number of hosts are replaced"


def test_the_files_and_the_settings(tmp_path):
    folder = tmp_path / "of the cluster"
    folder.mkdir()
    empty = document.existing(folder)
    assert document.write(TextLibrary(), folder, empty) == [] and not list(folder.iterdir())
    found = document.with_measurement(empty, measurement(4, 2, bcast=[point(1, 7, "a")]))
    written = document.write(TextLibrary(), folder, found)
    assert {path.name for path in written} == {"rules.txt", "measurements.json", "settings.sh"}
    assert set(written) == set(folder.iterdir())
    assert (folder / "settings.sh").read_text() == f"export VARIABLE_0='{folder}/rules.txt'\n"
    assert (folder / "rules.txt").read_text().endswith(" {4}")
    assert document.existing(folder) == json.loads(json.dumps(found))
    none = document.with_measurement(found, measurement(4, 2, bcast=[point(1, 7, None)]))
    document.write(TextLibrary(), folder, none)
    assert (folder / "settings.sh").read_text() == "", "rules that no longer hold are not used"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "pycoll tuning", "version": 1}'])
def test_another_file_is_not_replaced(tmp_path, text):
    assert document.existing(tmp_path)["mpi"] == native.library()
    (tmp_path / document.MEASUREMENTS).write_text(text)
    with pytest.raises(ValueError, match=r"measurements.json was not written by this version of --export"):
        document.existing(tmp_path)

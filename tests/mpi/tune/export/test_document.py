"""The directory of exported rules: what is in it, what is added to it, and what is refused."""

import json

import pytest

from pycoll.runtime import native
from pycoll.tune.export import document
from pycoll.tune.export.rules import Range

pytestmark = pytest.mark.mpi


def point(least, most, selected):
    return {"nbytes": least, "most": most, "selected": selected, "gain": 1.5, "seconds": {}}


def measurement(ranks, hosts=1, **primitives):
    return {"ranks": ranks, "hosts": hosts, "environment": {}, "primitives": primitives}


class TextLibrary:
    """A library whose files are the rules as text, and the numbers of ranks on several hosts, if there are some."""

    names = ("rules.txt", "hosts.txt")

    def files(self, rules, on_several_hosts):
        return {"rules.txt": str(rules)} | ({"hosts.txt": str(on_several_hosts)} if on_several_hosts else {})

    def variables(self, paths):
        return {f"VARIABLE_{number}": path for number, path in enumerate(paths.values())}


def test_neighboring_sizes_with_one_algorithm_are_one_range(tmp_path):
    points = [point(1, 7, "a"), point(8, 15, "a"), point(16, 31, None), point(32, 63, "a"), point(64, 99, "b")]
    found = document.with_measurement(document.existing(tmp_path), measurement(4, bcast=points, reduce=points[2:3]))
    assert document.rules(found) == {"bcast": {4: [Range(1, 15, "a"), Range(32, 63, "a"), Range(64, 99, "b")]}}


def test_measurements_are_added(tmp_path):
    first = measurement(4, bcast=[point(1, 7, "a"), point(8, 15, "a")], reduce=[point(1, 7, "a")])
    found = document.with_measurement(document.existing(tmp_path), first)
    found = document.with_measurement(found, measurement(8, bcast=[point(1, 7, "b")]))
    found = document.with_measurement(found, measurement(4, bcast=[point(2, 7, "c"), point(100, 199, "c")]))
    four = [Range(1, 1, "a"), Range(2, 7, "c"), Range(8, 15, "a"), Range(100, 199, "c")]
    assert document.rules(found) == {"bcast": {8: [Range(1, 7, "b")], 4: four}, "reduce": {4: [Range(1, 7, "a")]}}
    found = document.with_measurement(found, measurement(4, 2, bcast=[point(1, 7, None)]))
    assert document.rules(found) == {"bcast": {8: [Range(1, 7, "b")]}}, "those of other hosts are replaced"
    other = measurement(8, bcast=[point(8, 15, "d")]) | {"environment": {"cpu": "another one"}}
    assert document.rules(document.with_measurement(found, other)) == {"bcast": {8: [Range(8, 15, "d")]}}


def test_the_files_and_the_settings(tmp_path):
    folder = tmp_path / "of the cluster"
    folder.mkdir()
    found = document.with_measurement(document.existing(folder), measurement(4, 2, bcast=[point(1, 7, "a")]))
    written = document.write(TextLibrary(), folder, found)
    assert [path.name for path in written] == ["rules.txt", "hosts.txt", "measurements.json", "settings.sh"]
    assert set(written) == set(folder.iterdir())
    text = f"export VARIABLE_0='{folder}/rules.txt'\nexport VARIABLE_1='{folder}/hosts.txt'\n"
    assert (folder / "settings.sh").read_text() == text and (folder / "hosts.txt").read_text() == "{4}"
    assert document.existing(folder) == json.loads(json.dumps(found))
    one_host = document.with_measurement(found, measurement(4, 1, bcast=[point(1, 7, "a")]))
    document.write(TextLibrary(), folder, one_host)
    assert {path.name for path in folder.iterdir()} == {"rules.txt", "measurements.json", "settings.sh"}
    none = document.with_measurement(found, measurement(4, 2, bcast=[point(1, 7, None)]))
    document.write(TextLibrary(), folder, none)
    assert {path.name for path in folder.iterdir()} == {"measurements.json"}, "rules that no longer hold are not used"


def test_after_a_failure_no_file_is_in_use(tmp_path):
    found = document.with_measurement(document.existing(tmp_path), measurement(4, 2, bcast=[point(1, 7, "a")]))
    document.write(TextLibrary(), tmp_path, found)

    (tmp_path / "hosts.txt").unlink()
    (tmp_path / "hosts.txt").mkdir()
    with pytest.raises(IsADirectoryError):
        document.write(TextLibrary(), tmp_path, found)
    assert not (tmp_path / "settings.sh").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "pycoll tuning", "version": 1}'])
def test_another_file_is_not_replaced(tmp_path, text):
    assert document.existing(tmp_path)["mpi"] == native.library()
    (tmp_path / document.MEASUREMENTS).write_text(text)
    with pytest.raises(ValueError, match=r"measurements.json was not written by this version of --export"):
        document.existing(tmp_path)

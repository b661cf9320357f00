"""Files of links come back as they were written; wrong ones are refused with the line and the reason."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycoll.base.links import Times, read, write

PAIRS = st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] != pair[1])
TIMES = st.builds(Times, st.floats(0, 1), st.floats(1e-12, 1))


@given(links=st.dictionaries(PAIRS, TIMES, min_size=1))
def test_links_come_back(links, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "links.json"
    write(path, links, environment={"cores": 2})
    assert read(path) == links
    assert json.loads(path.read_text())["environment"] == {"cores": 2}


RIGHT = {"from": 0, "to": 1, "alpha": 0, "beta": 1e-9}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], 'is not a file of links: its top level is not an object with a list "links"'),
        ({"links": []}, "its top level is not"),
        ({"links": [{"from": 0, "to": 1}]}, '{"from": 0, "to": 1}: a link has the fields from, to, alpha and beta'),
        ({"links": [RIGHT | {"to": 0}]}, "from and to are two different hosts, numbered from 0"),
        ({"links": [RIGHT | {"to": -1}]}, "two different hosts"),
        ({"links": [RIGHT | {"to": True}]}, "two different hosts"),
        ({"links": [RIGHT | {"alpha": -1}]}, "alpha and beta are finite numbers that are not negative"),
        ({"links": [RIGHT | {"beta": "fast"}]}, "alpha and beta are finite"),
        ({"links": [RIGHT | {"beta": 0}]}, "beta, the seconds per byte, is 0"),
        ({"links": [RIGHT, RIGHT]}, "there is another link from 0 to 1"),
    ],
)
def test_wrong_files(document, why, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=re.escape(why)):
        read(path)


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_what_is_not_json(text, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"wrong\.json is not a file of links"):
        read(path)

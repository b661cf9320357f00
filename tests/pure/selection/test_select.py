"""The choice of an algorithm."""

from dataclasses import replace

import pytest

from pycoll.selection.choices import Choices
from pycoll.selection.select import CommFacts, SelectionKey, select


@pytest.mark.parametrize("library, chosen", [("MPICH Version: 5.0.2", "native"), ("Open MPI v5.0.11", "direct")])
def test_neighbors(library, chosen):
    """Between hosts, what was measured to be faster; inside a host, the messages in memory."""
    key = SelectionKey("neighbor_alltoall", 64, native=True)
    facts = CommFacts((0, 0, 1, 1), library=library, native=True)
    assert select(None, key, facts, Choices(), None).algorithm == chosen
    assert select(None, key._replace(native=False), facts, Choices(), None).algorithm == "direct"
    assert select(None, key, replace(facts, hosts=(0, 0, 0, 0)), Choices(), None).algorithm == "direct"
    assert select("native", key, facts, Choices(), None).algorithm == "native"

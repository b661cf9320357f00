"""Pictures of ranks that wait: each rank and each wait once, with the cycle in another color; inside the picture."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from pycoll.draw.language import speaking
from pycoll.draw.wait_for_graph import SIDE, described, waiting
from pycoll.schedule.diagnosis import WaitForGraph


def test_the_cycle_differs_from_the_other_ranks_that_wait():
    found = WaitForGraph([[1], [2], [0], [2], None], [0, 1, 2])
    picture = ElementTree.fromstring(f"<figure>{waiting(found)}</figure>")
    kinds = [one.get("class") for one in picture.iter() if one.get("class")]
    assert [kinds.count(f"arrow {kind}") for kind in ("cycle", "waits")] == [3, 1]
    assert [kinds.count(f"rank {kind}") for kind in ("cycle", "waits", "finished")] == [3, 1, 1]
    assert "Thick" in "".join(picture.itertext()) and "Dashed" in "".join(picture.itertext())
    assert "rank 3 waits for rank 2" in described(found)
    with speaking("zh-CN"):
        assert "3 号进程等待 2 号进程" in described(found)


@pytest.mark.parametrize("size", [1, 2, 9, 32])
def test_it_stays_inside(size):
    markup = waiting(WaitForGraph([[(rank + 1) % size] for rank in range(size)], list(range(size))))
    numbers = re.findall(r'(?: [xy]|cx|cy)="(-?[\d.]+)"', markup)
    for path in re.findall(r'class="arrow cycle" d="([^"]*)"', markup):
        numbers += re.findall(r"-?[\d.]+", path)
    assert len(numbers) >= 10 * size and all(abs(float(each)) < SIDE / 2 for each in numbers)

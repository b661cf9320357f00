"""Execution traces of Chakra: with and without blocks, and what is refused."""

import gzip
import json

import pytest

from pycoll.schedule.formats import NoAlgorithm, chakra, files_written, read
from pycoll.schedule.formats.plan import plan_of
from pycoll.schedule.formats.protobuf import decoded, encoded, number, read_number
from pycoll.schedule.registry import find


def ring():
    return plan_of(find("allreduce", "ring"), 3, nbytes=lambda blocks: 8 * len(blocks), gamma=1e-6)


def node(key, kind, after=(), **attributes):
    """Return a node as another program writes it: with a number in each dependency, and 32-bit attributes."""
    fields = encoded(1, key) + encoded(2, f"n{key}") + encoded(3, kind) + b"".join(encoded(4, each) for each in after)
    return fields + b"".join(encoded(10, encoded(1, name) + encoded(7, value)) for name, value in attributes.items())


def trace(*nodes):
    messages = [encoded(1, "0.0.4"), *nodes]
    return b"".join(number(len(each)) + each for each in messages)


def pair(**changes):
    """Return the traces of a send and its receive, each between computations."""
    to = {"comm_src": 0, "comm_dst": 1, "comm_size": 64, "comm_tag": 3} | changes
    before, after = node(0, 4), node(2, 4, [1])
    received = {"comm_src": 0, "comm_dst": 1, "comm_size": 64, "comm_tag": 3}
    return [trace(before, node(1, 5, [0], **to), after), trace(before, node(1, 6, [0], **received), after)]


def test_numbers():
    for value in (0, 1, 127, 128, 300, 1 << 40, (1 << 64) - 1):
        assert read_number(number(value), 0) == (value, len(number(value)))
    assert number(300) == b"\xac\x02"  # the example of the documentation
    assert decoded(encoded(2, "testing")) == {2: [b"testing"]}


@pytest.mark.parametrize("data", [b"\x80", b"\x12\x05ab", b"\x0b"])
def test_bytes_that_are_no_message(data):
    with pytest.raises(ValueError, match=r"it ends in the middle of|unknown type"):
        decoded(data)


def test_a_trace_of_another_program():
    for traces in (pair(), [gzip.compress(each) for each in pair()]):
        with pytest.raises(
            NoAlgorithm, match="all 1 messages between 2 ranks match, and all nodes end; the nodes have"
        ):
            chakra.read(traces)


@pytest.mark.parametrize(
    ("traces", "error"),
    [
        (pair(comm_size=65), r"two sizes: rank 0, node 1 \(n1\): 65 bytes; rank 1, node 1 \(n1\): 64 bytes"),
        (pair(comm_tag=4), r"rank 1, node 1 \(n1\): a message that rank 0 never sends"),
        (pair(comm_dst=2), r"rank 0, node 1 \(n1\): 2 is not another one of 2 ranks"),
        ([trace(node(0, 5, comm_dst=1))] * 2, r"rank 0, node 0 \(n0\): it has no attribute comm_size"),
        ([trace(node(0, 7))], r"rank 0, node 0 \(n0\): a collective has no messages that could be checked"),
        ([trace(node(0, 4, [1]), node(1, 4, [0]))], r"deadlock: rank 0, node 0 \(n0\) waits for rank 0, node 1 \(n1\)"),
        ([trace(node(0, 4, [5]))], "it depends on node 5, which does not exist"),
        ([trace(node(0, 4), node(0, 4))], "rank 0 has two nodes 0"),
        ([b""], "the trace of rank 0 is empty"),
        ([trace(node(0, 4))[:-1]], "rank 0, message 1: it ends in the middle of a message"),
    ],
)
def test_a_wrong_node_is_named(traces, error):
    with pytest.raises(ValueError, match=error) as caught:
        chakra.read(traces)
    assert not isinstance(caught.value, NoAlgorithm)


def test_the_blocks_come_back_as_they_were():
    assert chakra.read(chakra.write(ring())) == json.loads(json.dumps(ring().document()))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (b'"send": [2], "to": 1', b'"send": [2], "to": 2', r"rank 0, node 0 \(send 0\): its move is .*\"to\": 2"),
        (b'"send": [2], "to"', b'"copy": [2], "to"', r"rank 0, node 0 \(send 0\): its move is"),
        (b"pycoll_move", b"pycoll_mole", r"rank 0, node 0 \(send 0\): it has no attribute pycoll_move"),
        (b'"ranks": 3', b'"ranks": 4', "the traces of the ranks have different attributes"),
        (
            encoded(5, number(0) + number(2)),
            encoded(5, number(0) + number(1)),
            "it does not depend on all nodes of the round",
        ),
    ],
)
def test_attributes_that_are_not_those_of_their_node(old, new, error):
    first, *others = chakra.write(ring())
    assert old in first
    with pytest.raises(ValueError, match=error):
        chakra.read([first.replace(old, new, 1), *others])


def test_a_file_for_each_rank(tmp_path):
    files = files_written(ring(), "chakra", tmp_path / "mine.et")
    assert [file.name for file in files] == ["mine.0.et", "mine.1.et", "mine.2.et"]
    for file, data in files.items():
        file.write_bytes(data)
    assert read(tmp_path / "mine.1.et")["ranks"] == 3
    (tmp_path / "mine.1.et").unlink()
    with pytest.raises(ValueError, match=r"the files of the ranks are not mine\.0\.et, mine\.1\.et"):
        read(tmp_path / "mine.0.et")

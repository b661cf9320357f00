"""Execution plans of the forms that the DSL of MSCCL++ writes, and what is refused."""

import json

import pytest

from pycoll.schedule.document import algorithm_of
from pycoll.schedule.formats import parse
from pycoll.schedule.own_file import problem

NOP = {"name": "nop"}


def here(buffer, index, size=1):
    return {"type": buffer, "index": index, "size": size}


def there(buffer_id, index, size=1):
    return {"buffer_id": buffer_id, "index": index, "size": size}


def op(name, sources=(), targets=(), kind="memory", **more):
    found = {"name": name, "channel_type": kind} | more
    return found | ({"src_buff": [*sources], "dst_buff": [*targets]} if sources else {})


def signals(name, *channels, kind="memory"):
    return {"name": name, "channel_ids": [*channels], "channel_type": kind}


def plan(collective, blocks, counts, kind="memory", remote="i", semaphores=()):
    """Return a plan; `blocks` returns the operations of each thread block of a rank, which all use all channels."""
    ranks, gpus = counts[0], []
    for rank in range(ranks):
        peers = [peer for peer in range(ranks) if peer != rank]
        found = blocks(rank)
        connected = [peer for peer in peers for _ in found]
        threadblocks = [
            {
                "id": number,
                "ops": ops,
                "channels": [{"channel_type": kind, "channel_ids": [*range(number, len(connected), len(found))]}],
                "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": [*range(len(peers))]}],
            }
            for number, ops in enumerate(found)
        ]
        buffers = [{"rank": peer, "type": remote, "access_channel_types": [kind]} for peer in peers]
        sizes = dict(zip(("input_chunks", "output_chunks", "scratch_chunks"), counts[1:]))
        gpus.append(
            {"id": rank, **sizes, "threadblocks": threadblocks, "remote_buffers": buffers}
            | {"channels": [{"channel_type": kind, "connected_to": connected}], "semaphores": [*semaphores]}
        )
    return {"name": "x", "collective": collective, "protocol": "Simple", "inplace": True, "gpus": gpus}


def imported(given):
    return algorithm_of(parse([json.dumps(given).encode()], ".json", "x"), "x")


def reads_and_puts(rank, wait="wait", last=NOP):
    """Two thread blocks: each reads a chunk of the other rank, reduces it, and writes the result there."""
    ops = []
    for block in range(2):
        at = 2 * rank + block
        ops.append(
            [
                signals("rlxsignal", 0),
                signals("rlxwait", 0),
                NOP,
                op("rres", [here("i", at), there(0, at)], [here("i", at), there(0, at)]),
                last,
                signals("signal", 0),
                signals(wait, 0),
            ]
        )
    return ops


def test_reductions_that_read_and_write_other_ranks():
    found = imported(plan("allreduce", reads_and_puts, (2, 4, 4, 0)))
    assert not problem(found, 2) and len([*found.schedule(0, 2)]) == 2


def test_packets():
    def blocks(rank):
        at = 1 - rank
        return [
            [
                op("ppkt", [here("i", at)], [there(0, at)]),
                op("respkt", [here("i", rank), here("s", rank)], [here("i", rank), there(0, 2 + rank)]),
                op("upkt", [here("s", 2 + at)], [here("i", at)]),
            ]
        ]

    found = plan("allreduce", blocks, (2, 2, 2, 4), remote="s")
    assert not problem(imported(found), 2)
    found["gpus"][0]["threadblocks"][0]["ops"].pop(0)
    with pytest.raises(
        ValueError, match=r"rank 1, .*step 1 \(respkt i\[1\]\) waits for a packet in s\[1\], which never comes"
    ):
        imported(found)


def gathers(rank, put="put", flush=True):
    """An all-gather on port channels, whose source is overwritten when the channel has read it."""
    return [
        [op("copy", [here("o", rank)], [here("s", 0)]), NOP]
        + [op(put, [here("s", 0)], [there(0, rank)], kind="port", channel_ids=[0])]
        + ([signals("signal", 0, kind="port")] if put == "put" else [])
        + ([signals("flush", 0, kind="port")] if flush else [])
        + [NOP, op("copy", [here("o", rank)], [here("s", 0)]), signals("wait", 0, kind="port")]
    ]


@pytest.mark.parametrize(("put", "flush"), [("put", True), ("pws", True), ("pwsf", False)])
def test_puts_in_the_background(put, flush):
    found = plan("allgather", lambda rank: gathers(rank, put, flush), (2, 1, 2, 1), kind="port", remote="o")
    assert not problem(imported(found), 2)


@pytest.mark.parametrize("put", ["put", "pws"])
def test_a_source_that_is_overwritten_too_early(put):
    found = plan("allgather", lambda rank: gathers(rank, put, False), (2, 1, 2, 1), kind="port", remote="o")
    with pytest.raises(
        ValueError, match=r"race: rank \d, .*step 2 \(\w+ o\[\d\]\) in the background and .*step \d \(copy s"
    ):
        imported(found)


def one_after_the_other(rank, between):
    """Two thread blocks of which the second needs what the first one writes to scratch memory."""
    first = [op("get", [there(0, 1 - rank)], [here("s", 0)]), NOP]
    second = [op("copy", [here("s", 0)], [here("o", 1 - rank)])]
    return [first + between[0], between[1] + second]


BARRIER = [{"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}]
RELEASE, ACQUIRE = ([{"name": f"sem_{name}", "semaphore_ids": [0]}] for name in ("release", "acquire"))


@pytest.mark.parametrize("between", [(BARRIER, BARRIER), (RELEASE, [*ACQUIRE, NOP])], ids=["barrier", "semaphore"])
def test_thread_blocks_that_wait_for_each_other(between):
    counts, semaphores = (2, 1, 2, 1), [{"init_value": 0}]
    found = plan(
        "allgather", lambda rank: one_after_the_other(rank, between), counts, remote="o", semaphores=semaphores
    )
    assert not problem(imported(found), 2)


@pytest.mark.parametrize(
    ("between", "error"),
    [
        (
            ([], []),
            r"race: rank 0, thread block \d, step \d .* and rank 0, thread block \d, .* access s\[0\] of rank 0",
        ),
        ((RELEASE, ACQUIRE), r"race: rank 0"),  # no synchronization of the threads after it
        ((BARRIER, []), "waits for 2 thread blocks at barrier 0, to which 1 come"),
        (([], ACQUIRE), "waits for semaphore 0, which no one releases"),
        (
            ([], [signals("wait", 0)]),
            r"rank 0, thread block 1, step 0 \(wait\) waits for a signal from rank 1, which never",
        ),
    ],
)
def test_thread_blocks_that_do_not(between, error):
    counts, semaphores = (2, 1, 2, 1), [{"init_value": 0}]
    found = plan(
        "allgather", lambda rank: one_after_the_other(rank, between), counts, remote="o", semaphores=semaphores
    )
    with pytest.raises(ValueError, match=error):
        imported(found)


@pytest.mark.parametrize("change", [{"wait": "rlxwait"}, {"last": {"name": "flush", "channel_ids": []}}])
def test_signals_that_do_not_order_memory(change):
    with pytest.raises(ValueError, match=r"race: rank \d, thread block \d, step 3 \(rres i\[\d\]\) and rank \d, end"):
        imported(plan("allreduce", lambda rank: reads_and_puts(rank, **change), (2, 4, 4, 0)))


def shared(rank, size=1):
    """Two thread blocks that share the messages of an all-gather, each with its own half."""
    info = [{"tbg_info": {"tb_id": block, "tbg_size": 2}} for block in range(2)]
    ready = [op("copy", [here("i", 0, size)], [here("s", 0, size)], **each) for each in info]
    puts = [[op("put", [here("s", k)], [there(0, rank * size + k)], **each) for k in range(size)] for each in info]
    return [[one, NOP, *put, NOP, signals("signal", 0), signals("wait", 0)] for one, put in zip(ready, puts)]


def test_thread_blocks_that_share_operations():
    assert not problem(imported(plan("allgather", shared, (2, 1, 2, 1), remote="o")), 2)


def test_thread_blocks_that_share_operations_in_different_ways():
    found = plan("allgather", lambda rank: shared(rank, 2), (2, 2, 4, 2), remote="o")
    with pytest.raises(ValueError, match=r"race: rank 0, thread block \d.*copy.* and rank 0, thread block \d.*put"):
        imported(found)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": "glres"}, r"rank 0, thread block 0, step 0 \(glres\): this operation is not read"),
        (
            {"name": "put", "channel_type": "memory"},
            r"step 0 \(put\): it lacks a field, or names .*KeyError: 'src_buff'",
        ),
        (signals("signal", 7), r"step 0 \(signal\): it lacks a field, or names a channel or a buffer"),
        (signals("signal", -1), r"step 0 \(signal\): it lacks a field, or names a channel or a buffer"),
        (op("copy", [here("i", 4)], [here("i", 0)]), r"i\[4\] to i\[4\] is outside of the 4 chunks of rank 0"),
        (op("copy", [here("i", 0, 2)], [here("i", 0)]), "the buffers have different sizes"),
    ],
)
def test_a_wrong_plan_names_the_step(change, error):
    found = plan("allreduce", reads_and_puts, (2, 4, 4, 0))
    found["gpus"][0]["threadblocks"][0]["ops"].insert(0, change)
    with pytest.raises(ValueError, match=error):
        imported(found)


@pytest.mark.parametrize("field", ["collective", "inplace"])
def test_a_field_that_is_missing(field):
    found = plan("allreduce", reads_and_puts, (2, 4, 4, 0))
    del found[field]
    with pytest.raises(ValueError, match=rf"it is not an execution plan of MSCCL\+\+: KeyError: '{field}'"):
        imported(found)

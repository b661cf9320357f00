"""Algorithms of the form that msccl-tools writes: fused steps, several channels, and what is refused."""

import pytest

from pycoll.schedule.document import algorithm_of
from pycoll.schedule.formats import NoAlgorithm, parse
from pycoll.schedule.own_file import problem
from tests.pure.schedule.formats.running import run_msccl

FIELDS = ("type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep")


def step(kind, source="i-1", to="o-1", count=1, needs=(-1, -1), needed=0):
    values = (kind, source[0], source[1:], to[0], to[1:], count, *needs, needed)
    return dict(zip(FIELDS, values))


def written(coll, gpus, chunks, in_place=1, proto="Simple", scratch=0, out=None):
    """Return an XML text; each GPU is a list of thread blocks: send, recv, channel and steps."""
    lines = [f'<algo name="x" proto="{proto}" ngpus="{len(gpus)}" coll="{coll}" inplace="{in_place}">']
    for rank, blocks in enumerate(gpus):
        lines += [f'<gpu id="{rank}" i_chunks="{chunks}" o_chunks="{out or chunks}" s_chunks="{scratch}">']
        for number, (send, recv, channel, steps) in enumerate(blocks):
            lines += [f'<tb id="{number}" send="{send}" recv="{recv}" chan="{channel}">']
            for at, each in enumerate(steps):
                lines += [f'<step s="{at}" ' + " ".join(f'{name}="{value}"' for name, value in each.items()) + "/>"]
            lines += ["</tb>"]
        lines += ["</gpu>"]
    return "\n".join([*lines, "</algo>"])


def imported(text):
    return algorithm_of(parse([text.encode()], ".xml", "x"), "x")


def fused_ring(p, channels=1):
    """A ring with one thread block for each channel: s, rrs, rrcs, rcs and r."""
    gpus = []
    for rank in range(p):
        blocks = [[] for _ in range(channels)]
        for index in range(p):
            cell = f"i{index}"
            first = [step("s", cell)] if rank == index else []
            middle = [step("rrs", cell, cell)] if (rank - index) % p not in (0, p - 1) else []
            turn = [step("rrcs", cell, cell)] if (rank - index) % p == p - 1 else []
            last = [step("r", cell, cell)] if (rank - index) % p == p - 2 else []
            spread = [step("rcs", cell, cell)] if (rank - index) % p not in (p - 2, p - 1) else []
            order = [(0, first), ((rank - index) % p, middle + turn), (p + (rank - index) % p, spread + last)]
            blocks[index % channels] += [(at, each) for at, steps in order for each in steps]
        gpus.append(
            [
                ((rank + 1) % p, (rank - 1) % p, channel, [each for _, each in sorted(steps, key=lambda pair: pair[0])])
                for channel, steps in enumerate(blocks)
            ]
        )
    return written("allreduce", gpus, p, proto="LL")


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_a_ring_of_fused_steps(channels, draw):
    text = fused_ring(4, channels)
    assert run_msccl(text, draw)
    found = imported(text)
    assert not problem(found, 4)
    assert len([*found.schedule(0, 4)]) == 6  # as many rounds as the ring of pycoll


def all_pairs(p, needed=1):
    """Each rank reduces its chunk from scratch memory, on a channel for each peer, and sends it to all."""
    gpus = []
    for rank in range(p):
        peers = [peer for peer in range(p) if peer != rank]
        blocks = []
        for at, peer in enumerate(peers):
            steps = [step("s", f"i{peer}"), step("r", to=f"s{at}", needed=needed)]
            steps += [step("s", f"i{rank}", needs=(p - 1, p - 2)), step("r", to=f"i{peer}")]
            blocks.append((peer, peer, 0, steps))
        sums = [step("re", f"s{at}", f"i{rank}", needs=(at, 1), needed=1) for at in range(p - 1)]
        gpus.append([*blocks, (-1, -1, 0, sums)])
    return written("allreduce", gpus, p, scratch=p - 1)


def test_all_pairs_with_a_thread_block_for_each_peer(draw):
    text = all_pairs(4)
    assert run_msccl(text, draw)
    assert not problem(imported(text), 4)


def gathered(*first, in_place=0):
    """An all-gather of two ranks, with two chunks of each rank."""
    gpus = []
    for rank in range(2):
        mine, other = f"o{2 * rank}", f"o{2 - 2 * rank}"
        gpus.append([(1 - rank, -1, 0, [step("s", "i0", count=2)]), (-1, 1 - rank, 0, [step("r", to=other, count=2)])])
        gpus[-1].append((-1, -1, 0, [*first, step("cpy", "i0", mine, count=2)]))
    return written("allgather", gpus, 2, in_place, out=4)


def test_blocks_of_several_chunks():
    found = imported(gathered())
    assert not problem(found, 2) and next(found.schedule(0, 2))[0].blocks == [0]


def test_chunks_of_a_block_that_take_different_ways(draw):
    gpus = []
    for rank in range(3):
        blocks = []
        for chunk, way in enumerate((1, -1)):
            mine, next_one, last = (f"o{(rank - way * far) % 3 * 2 + chunk}" for far in range(3))
            steps = [step("s", mine), step("rcs", to=next_one), step("r", to=last)]
            blocks.append(((rank + way) % 3, (rank - way) % 3, chunk, steps))
        gpus.append(blocks)
    text = written("allgather", gpus, 2, out=6)
    assert run_msccl(text, draw)
    with pytest.raises(NoAlgorithm, match="each rank gets its result, but the 2 chunks of a block take different ways"):
        imported(text)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("rrs", "rrc"), r"deadlock: rank 0, thread block 0, step 5 \(rcs i\[3\]\) waits for a message from rank 3"),
        (
            ('recv="3"', 'recv="2"'),
            r"rank 3, thread block 0, step 0 \(s i\[3\]\) sends a message that rank 0 never recei",
        ),
        (
            ('send="1"', 'send="0"'),
            r"rank 0, thread block 0, step 0 \(s\): send=0 of its thread block is not another rank",
        ),
        (('srcoff="3"', 'srcoff="4"'), r"i\[4\] is outside of the 4 chunks of this buffer"),
        (('type="rcs"', 'type="rccs"'), r"step \d \(rccs\): the type is not one of s, r, rcs"),
        (('coll="allreduce"', 'coll="custom"'), "the collective 'custom' is not one of: allreduce, allgather"),
        (('ngpus="4"', 'ngpus="5"'), "the ids of the elements gpu are not 0 to 4"),
        (
            ('i_chunks="4"', 'i_chunks="99999999999"'),
            "the buffers have 99999999999 chunks, which is not a number from 1 to",
        ),
        (("</algo>", ""), "it is not XML: no element found"),
        (("algo", "algorithm"), "the first element is algorithm, not algo"),
        (('ngpus="4"', 'ngpus="four"'), "ngpus='four' of an element algo is not a number"),
        (('s="1"', 's="9"'), "rank 0, thread block 0: the steps are not 0 to"),
    ],
)
def test_a_wrong_file_names_the_step(change, error):
    with pytest.raises(ValueError, match=error):
        imported(fused_ring(4).replace(*change))


def test_a_deadlock_names_the_steps_that_wait_for_each_other():
    receives_first = [[(1 - r, 1 - r, 0, [step("r", to="o0"), step("s", "i0")])] for r in range(2)]
    with pytest.raises(ValueError) as caught:
        imported(written("alltoall", receives_first, 2, in_place=0))
    assert "rank 0, thread block 0, step 0 (r o[0]) waits for rank 1, thread block 0, step 1 (s i[0])" in str(
        caught.value
    )
    assert str(caught.value).startswith("deadlock: ")


@pytest.mark.parametrize(("proto", "ends"), [("Simple", False), ("LL", True)])
def test_a_queue_has_room_for_two_sends(proto, ends):
    gpus = []
    for rank in range(2):
        steps = [step("s", f"i{chunk}") for chunk in range(3)] + [
            step("rrc", f"i{chunk}", f"i{chunk}") for chunk in range(3)
        ]
        gpus.append([(1 - rank, 1 - rank, 0, steps)])
    text = written("allreduce", gpus, 3, proto=proto)
    if ends:
        assert not problem(imported(text), 2)
    else:
        with pytest.raises(ValueError, match=r"deadlock: rank 0, thread block 0, step 2 \(s i\[2\]\) waits for rank 1"):
            imported(text)


def test_a_race_names_both_steps():
    with pytest.raises(ValueError) as caught:
        imported(all_pairs(3).replace(f'depid="{2}" deps="1"', 'depid="-1" deps="-1"', 1))
    assert str(caught.value).startswith("race: rank 0, thread block ")
    assert " and rank 0, thread block " in str(caught.value) and "access i[0] of rank 0" in str(caught.value)


def test_a_dependency_on_a_step_without_a_flag():
    with pytest.raises(ValueError, match=r"waits for step 1 of thread block 0, which sets no flag \(hasdep\)"):
        imported(all_pairs(3, needed=0))


def test_a_second_reduction_names_the_rank_the_step_and_the_block():
    once = 'type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0"'
    twice = all_pairs(3).replace('type="re" srcbuf="s" srcoff="1" dstbuf="i" dstoff="0"', once)
    with pytest.raises(ValueError) as caught:
        imported(twice)
    assert str(caught.value) == (
        "rank 0, thread block 2, step 1 (re i[0]) reduces the contribution of rank 1 to block 0 a second time"
    )


def test_a_block_that_is_left_out():
    text = gathered().replace('<step s="0" type="cpy"', '<step s="0" type="nop"', 1)
    with pytest.raises(ValueError, match=r"rank 0 ends without block 0: no step writes o\[0\]"):
        imported(text)


def test_a_message_of_another_length():
    with pytest.raises(ValueError, match=r"receives 1 chunks, and rank 1, thread block 0, step 0 .* sends 2"):
        imported(gathered().replace('dstoff="2" cnt="2"', 'dstoff="2" cnt="1"', 1))

"""Every algorithm comes back from every format that can express it; no wrong file is proved."""

import copy
import json
import random
from xml.etree import ElementTree

import pytest

from pycoll.schedule.document import algorithm_of
from pycoll.schedule.formats import FORMATS, NoAlgorithm, parse
from pycoll.schedule.formats.cells import COLLECTIVES
from pycoll.schedule.formats.plan import plan_of
from pycoll.schedule.own_file import problem
from pycoll.schedule.registry import find
from tests.pure.schedule.formats.running import Stuck, run_goal, run_msccl, run_mscclpp
from tests.pure.schedule.test_document import results
from tests.pure.schedule.test_proof import ALGORITHMS

ON_CHUNKS = ("msccl", "mscclpp")


def expresses(format, algorithm):
    return not algorithm.needs_counts and (format not in ON_CHUNKS or algorithm.primitive.name in COLLECTIVES)


def planned(algorithm, ranks):
    root, segments = ranks - 1 if algorithm.primitive.rooted else 0, 3 if algorithm.pipelined else 1
    hosts = tuple(rank % 2 for rank in range(ranks)) if algorithm.knows_hosts and not algorithm.levels else None
    return plan_of(algorithm, ranks, root, segments, hosts)


def contents(plan, format):
    found = FORMATS[format].write(plan)
    return [found.encode()] if isinstance(found, str) else found


def read_back(given, format):
    """Return the algorithm of the contents of files."""
    return algorithm_of(parse(given, FORMATS[format].ending, "back"), "back")


SLOW = [pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 6, 7, 8, 9)]


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if not each.needs_counts], ids=str)
@pytest.mark.parametrize("ranks", [2, 3, 5, *SLOW])
def test_every_algorithm_comes_back(algorithm, ranks):
    plan = planned(algorithm, ranks)
    for format in FORMATS:
        if not expresses(format, algorithm):
            with pytest.raises(ValueError, match=f"has no name for {algorithm.primitive.name}"):
                FORMATS[format].write(plan)
        elif format == "goal":
            with pytest.raises(NoAlgorithm, match=f"messages between {ranks} ranks match, and all operations end"):
                read_back(contents(plan, format), format)
        else:
            found = read_back(contents(plan, format), format)
            assert problem(found, ranks, plan.root) == ""
            assert found.ordered >= algorithm.ordered or not algorithm.primitive.reduces


def altered_msccl(text, draw):
    """Return the file with one random change."""
    algo = ElementTree.fromstring(text)
    blocks = [tb for tb in algo.iter("tb") if len(tb)]
    tb, step = draw.choice(blocks), draw.choice(list(algo.iter("step")))
    match draw.randrange(8):
        case 0:
            tb.remove(draw.choice(list(tb)))
        case 1:
            tb.insert(draw.randrange(len(tb)), copy.deepcopy(draw.choice(list(tb))))
        case 2:
            steps = list(tb)
            draw.shuffle(steps)
            tb[:] = steps
        case 3:
            step.set("depid", "-1")
        case 4:
            step.set("type", draw.choice(["s", "r", "rrc", "rcs", "rrs", "rrcs", "cpy", "re", "nop"]))
        case 5:
            tb.set(draw.choice(["send", "recv"]), str(draw.randrange(3)))
        case _:
            step.set(draw.choice(["srcoff", "dstoff", "cnt", "deps", "depid", "hasdep"]), str(draw.randrange(4)))
            step.set(draw.choice(["srcbuf", "dstbuf"]), draw.choice("iiios"))
    for tb in blocks:
        for number, each in enumerate(tb):
            each.set("s", str(number))
    return ElementTree.tostring(algo, encoding="unicode")


def altered_mscclpp(text, draw):
    """Return the plan with one random change."""
    plan = json.loads(text)
    gpu = draw.choice(plan["gpus"])
    ops = gpu["threadblocks"][0]["ops"]
    at, other = draw.randrange(len(ops)), draw.randrange(len(ops))
    numbers = [each for op in ops for way in ("src_buff", "dst_buff") for each in op.get(way, ())]
    match draw.randrange(7):
        case 0:
            del ops[at]
        case 1:
            ops.insert(other, ops[at])
        case 2:
            ops[at], ops[other] = ops[other], ops[at]
        case 3:
            ops[at : at + 2] = ops[at : at + 2][::-1]
        case 4:
            each = draw.choice([op for op in ops if "channel_ids" in op])
            each["channel_ids"] = draw.sample([0, 1, 2], draw.randint(1, 2))
        case 5:
            each = draw.choice([op for op in ops if "src_buff" in op])
            each["name"] = draw.choice(["copy", "put", "re"])
        case _:
            each = draw.choice(numbers)
            each[draw.choice(["index", "size", *(["buffer_id"] if "buffer_id" in each else ["type"])])] = draw.choice(
                [0, 1, 2, "i", "o", "s"]
            )
    return json.dumps(plan)


def altered_goal(text, draw):
    """Return the schedule with one random change."""
    lines = text.splitlines()
    at = draw.choice([number for number, line in enumerate(lines) if line.startswith("l")])
    match draw.randrange(5):
        case 0:
            del lines[at]
        case 1:
            other = draw.choice([number for number, line in enumerate(lines) if line.startswith("l")])
            lines[at], lines[other] = lines[other], lines[at]
        case 2:
            words = lines[at].split()
            words[-1] = f"l{draw.randrange(9)}" if "requires" in words else str(draw.randrange(3))
            lines[at] = " ".join(words)
        case 3:
            lines.insert(at + 1, f"l{draw.randrange(1, 9)} requires l{draw.randrange(1, 9)}")
        case _:
            lines[at] = lines[at].replace(
                *draw.choice([("send", "recv"), ("to 1", "to 2"), ("from 0", "from 2"), ("b ", "0b ")])
            )
    return "\n".join(lines) + "\n"


CHUNK_PLANS = [
    ("allreduce", "ring", 3),
    ("allreduce", "recursive_doubling", 4),
    ("allgather", "bruck", 3),
    ("reduce_scatter", "ring", 3),
    ("alltoall", "tree", 3),
]


@pytest.mark.parametrize(
    ("format", "alter", "run", "plans"),
    [
        ("msccl", altered_msccl, run_msccl, CHUNK_PLANS),
        ("mscclpp", altered_mscclpp, run_mscclpp, CHUNK_PLANS),
        ("goal", altered_goal, run_goal, [("allreduce", "ring", 3), ("alltoall", "pairwise", 4)]),
    ],
)
def test_no_wrong_file_is_proved(format, alter, run, plans):
    draw, refused, proved = random.Random(1), 0, 0
    texts = [FORMATS[format].write(plan_of(find(*names), ranks)) for *names, ranks in plans]
    for text in texts:
        assert run(text, draw) is not False  # the executor itself
    for number in range(500):
        text = alter(texts[number % len(texts)], draw)
        try:
            found = read_back([text.encode()], format)
            if problem(found, found.only[0]):
                raise ValueError("wrong")
        except NoAlgorithm:
            pass
        except ValueError:
            refused += 1
            continue
        proved += 1
        for _ in range(3):
            try:
                assert run(text, draw) is not False, text
            except Stuck:
                raise AssertionError(f"it does not end:\n{text}") from None
    assert refused > 250 and proved > 5


def test_no_wrong_trace_is_proved():
    draw, refused, proved = random.Random(1), 0, 0
    traces = FORMATS["chakra"].write(plan_of(find("allreduce", "ring"), 3, nbytes=lambda blocks: 8 * len(blocks)))
    for _ in range(500):
        altered = [bytearray(trace) for trace in traces]
        trace = draw.choice(altered)
        if draw.random() < 0.5:
            trace[draw.randrange(len(trace))] = draw.randrange(256)
        else:
            old, new = draw.sample([b"0", b"1", b"2", b"from", b"to", b"after", b"before", b"reduce", b"receive"], 2)
            at = trace.find(old, draw.randrange(len(trace)))
            if at >= 0 and len(old) == len(new):
                trace[at : at + len(old)] = new
        try:
            found = read_back([bytes(each) for each in altered], "chakra")
        except ValueError:
            refused += 1
            continue
        if problem(found, 3):
            refused += 1
        else:
            proved += 1
            assert found.primitive.name == "allreduce" and results(found, 3) == [[111] * 3] * 3
    assert refused > 100 and proved > 5

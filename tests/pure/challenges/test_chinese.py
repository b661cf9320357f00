"""Errors of proofs in Chinese: each template is used, each message has one, and what has none stays English."""

import ast
import inspect
import re

import pytest

from pycoll import playground
from pycoll.challenges import edited, tasks
from pycoll.challenges.chinese import ERRORS, translated
from pycoll.schedule import diagnosis, moves, proof
from pycoll.simulate import topology_names

CODE = re.compile(
    r"NameError: .*|torus:NxN.*|\w+\.[\w:]+|\w+\(.*?\)\B|`.*?`|[\w.:]+=\S+"
    r"|\b(yield|None|Recv|barrier|lg|BEFORE|AFTER)\b"
)
ENGLISH = re.compile("[A-Za-z]{2,}")


def pieces(source):
    """Return the words of the messages in a source: the constants in it, but no docstrings, names or types."""
    tree = ast.parse(source)
    hidden = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield from (each.strip(",: ") for each in re.split(r"\{\}|\n", node.value) if " " in each.strip(",: "))


MESSAGES = [
    proof._Run,
    proof.situation,
    proof._check_goal,
    proof._check_contributions,
    diagnosis,
    moves.check_round,
    edited.read,
    edited.examine,
    tasks.most_rounds,
    tasks.most_bytes,
    tasks.one_message_a_round,
    topology_names.parse,
    topology_names.check_hosts,
]


@pytest.mark.parametrize("made", MESSAGES, ids=lambda made: made.__name__)
def test_every_message_has_a_template(made):
    templates = [re.sub(r"\{\w?\}", "{}", template) for template in ERRORS]
    known = {part for template in templates for part in template.split("{}")}
    for piece in pieces(inspect.getsource(made)):
        assert any(piece in part for part in known) or piece in OTHERS, piece


OTHERS = {
    "is not a text such as 'torus:8x8x8'",  # of another type, which a browser does not send
    "Proved for",  # the words of the player have the verdict
    "ranks.",
    "a rank that waits for no one",  # cannot happen
}


def messages():
    """Return errors of each kind: of the challenges as they are given, of changed algorithms, and of topologies."""
    found = [playground.judged(one.name, one.text) for one in tasks.CHALLENGES.values()]
    for primitive, name, old, new in CHANGES:
        text = playground.source(primitive, name)
        assert old in text, (old, text)
        found.append(playground.check(primitive, name, text.replace(old, new)))
    for topology in ("cube:3", "torus:0", "torus:2"):
        with pytest.raises(ValueError, match="topology") as raised:
            playground.page("allreduce", ["ring"], 8, topology=topology)
        found.append({"proved": False, "text": str(raised.value)})
    return [each["text"] for each in found if not each["proved"]]


CHANGES = [
    ("allgather", "ring", "+ 1) % size, ", "+ 2) % size, "),
    ("allgather", "ring", "), Recv(", "),\n        yield Recv("),
    ("allgather", "ring", "yield Send", "yield Send(0, []), Send"),
    ("allgather", "ring", "[(rank - step) % size]", "[0]"),
    ("allgather", "ring", "[(rank - step) % size]", "0"),
    ("allgather", "ring", "[(rank - step) % size]", "[[]]"),
    ("allgather", "ring", "range(size - 1)", "range(rank)"),
    ("allgather", "ring", "yield ", "return "),
    ("allgather", "ring", "yield ", "yield 1, "),
    ("allgather", "ring", "(rank - step - 1)", "(rank - step)"),
    ("allgather", "ring", "@algorithm", "#"),
    ("allgather", "ring", "yield Send(right", "yield Send(7 * right"),
    ("reduce", "naive", "Reduce(", "Recv("),
    ("reduce", "naive", ", BEFORE", ", 'first'"),
    ("reduce_scatter", "ring", "range(1, size)", "range(0, size)"),
    ("barrier", "dissemination", "distance *= 2", "distance *= 3"),
]


def test_messages_are_in_chinese():
    said = messages()
    chinese = [translated(text) for text in said]
    for text, other in zip(said, chinese, strict=True):
        left = ENGLISH.findall(CODE.sub("", other))
        assert not left, f"{left} in {other!r}, from {text!r}"


def test_other_errors_stay_english():
    assert translated("line 3: NameError: name 'x' is not defined") == "第 3 行：NameError: name 'x' is not defined"
    assert translated("no template") == "no template"


def test_the_playground_speaks_chinese():
    text = tasks.CHALLENGES["everyone_waits"].text
    assert playground.judged("everyone_waits", text, "zh-CN")["text"].splitlines()[:2] == [
        "allgather.everyone_waits（2 个进程）：死锁：0 号进程等待 1 号进程，1 号进程等待 0 号进程",
        "  0 号进程第 1 轮：等待向 1 号进程发送块 0，而后者正处于第 1 轮：向 0 号进程发送块 1",
    ]
    with pytest.raises(ValueError, match="topology='torus:2' 只有 0 到 1 号主机，但有进程在 7 号主机上"):
        playground.page("allreduce", ["ring"], 8, topology="torus:2", language="zh-CN")

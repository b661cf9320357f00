"""How blocks, contributors and amounts are written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from ..schedule.costs import FIELDS, documented, formula_for
from ..schedule.moves import Block
from ..schedule.proof import Counts
from ..schedule.registry import counts_of
from .frames import Film, Message


def block_name(film: Film, block: Block, arrow: str = "\u2192") -> str:
    """A block in a cell: the number of a part or rank, source and target, or owner and part."""
    match block:
        case int():
            return "all" if film.algorithm.primitive.cuts and film.parts == 1 else str(block)
        case (str(), int(source)) if block == counts_of(source):
            return f"#{source}"
        case (int(source), int(to)) if exchanges(film):
            return f"{source}{arrow}{to}"
        case (int(source), int(part)):
            return f"{source}:{part}" if film.parts > 1 else f"of {source}"
    return str(block)


def row_name(film: Film, block: Block) -> str:
    """A block at the left of its row."""
    primitive = film.algorithm.primitive
    match block:
        case int() if film.hears:
            return f"of {block}"
        case int() if primitive.reduces or primitive.cuts:
            return f"part {block}" if film.parts > 1 else "vector"
        case int():
            return f"block {block}"
        case (str(), int(source)) if block == counts_of(source):
            return "counts"
    return block_name(film, block)


def exchanges(film: Film) -> bool:
    """Whether each rank has a block for each rank, so that rows are places in its buffers, not names."""
    primitive = film.algorithm.primitive
    return primitive.takes_all and primitive.gives_all


def runs(numbers: Sequence[int], between: str = ",") -> str:
    """Numbers in their order, three and more that follow each other as a range: 3,0-2."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    texts = [f"{group[0]}-{group[-1]}" if len(group) > 2 else between.join(map(str, group)) for group in groups]
    return between.join(texts)


def load(film: Film, message: Message, arrow: str = "\u2192") -> str:
    """The blocks of a message, briefly; nothing where it can only be the one."""
    blocks = message.blocks
    if not blocks or (film.parts == 1 and len(blocks) == 1 and isinstance(blocks[0], int)):
        return ""
    if exchanges(film) and blocks == (message[:2],):
        return ""
    numbers = [block for block in blocks if isinstance(block, int)]
    counts_from = [block[1] for block in blocks if isinstance(block, tuple) and block == counts_of(block[1])]
    if len(blocks) in (len(numbers), len(counts_from)):
        return runs(numbers) or "#" + runs(counts_from)
    if len(blocks) == 1:
        return block_name(film, blocks[0], arrow)
    return f"{len(blocks)} blocks"


def sentence(film: Film, message: Message, arrow: str = "\u2192") -> str:
    """A message in a list of them: from whom to whom, what, a plus where it is combined."""
    what = load(film, message, arrow)
    what = f"+{what or 'vector'}" if message.combined else what
    return f"{message.source}{arrow}{message.to}" + (f" [{what}]" if what else "")


def number(value: float) -> str:
    """Three figures at most, and no zeros behind."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def amount(vector: float, nbytes: float = 0) -> str:
    """Bytes as a multiple of those of the vector, and further bytes."""
    terms = [f"{number(vector)} Z".removeprefix("1 ")] if vector else []
    return " + ".join([*terms, f"{number(nbytes)} B"] if nbytes else terms) or "0"


def _exchanged(film: Film, field: Callable[[Counts], Sequence[float]]) -> Sequence[float]:
    """What each rank sends, receives or combines of the counts of blocks."""
    return field(film.counts_traffic) if film.counts_traffic else [0] * film.size


def by_rank(film: Film, field: Callable[[Counts], Sequence[float]]) -> list[str]:
    """What each rank sends, receives or combines."""
    exchanged = _exchanged(film, field)
    return [amount(vector, nbytes) for vector, nbytes in zip(field(film.counts), exchanged)]


def busiest(film: Film, field: Callable[[Counts], Sequence[float]]) -> str:
    """The most that a rank sends, receives or combines, for long vectors."""
    exchanged = _exchanged(film, field)
    return amount(*max(zip(field(film.counts), exchanged)))


def _of_ranks(film: Film, field: Callable[[Counts], Sequence[float]]) -> str:
    alike = len(set(by_rank(film, field))) == 1
    return busiest(film, field) + (" a rank" if alike else " at the busiest rank")


def cost(film: Film) -> str:
    """What the proof counts along the critical path, in the notation of the formulas."""
    counts, exchanged = film.counts, film.counts_traffic.beta if film.counts_traffic else 0
    terms = [
        (counts.alpha, "alpha"),
        (exchanged, "beta"),
        (counts.beta, "Z*beta"),
        (counts.gamma, "Z*gamma"),
    ]
    return " + ".join(f"{number(factor)}*{unit}".removeprefix("1*") for factor, unit in terms if factor) or "0"


def facts(film: Film) -> list[tuple[str, str, str]]:
    """Each quantity, its formula in the docstring, and the count of the proof; for the busiest rank."""
    formulas, counts = documented(film.algorithm), film.counts
    each = " a rank" if len(set(counts.messages)) == 1 else " at the busiest rank"
    here = {"Rounds": str(counts.rounds), "Messages": f"{max(counts.messages)}{each}"}
    here["Sent"] = _of_ranks(film, lambda counts: counts.sent)
    here["Received"] = _of_ranks(film, lambda counts: counts.received)
    here["Cost"] = cost(film)
    shown = [name for name in here if name in formulas or not here[name].startswith("0")]
    return [(name, _formula(formulas.get(name, ""), film.size), here[name]) for name in shown]


def _formula(text: str, size: int) -> str:
    formula, exact = formula_for(text, size) if size > 1 else ("", True)  # with one rank nothing moves
    return formula if exact or not formula else f"at most {formula}"


NOTATION = (
    "p: ranks; h: hosts; S: segments; Z: bytes of the whole vector (of all ranks' blocks together; of all-to-all, "
    "one rank's send buffer); lg: logarithm to base 2, rounded up; bruck(p): bits set in all numbers below p; "
    "alpha: a message's latency; beta: time per byte sent or received; gamma: time per byte combined."
)


def setting(film: Film) -> str:
    """The number of ranks, and the other parameters."""
    algorithm, given = film.algorithm, [f"{film.size} rank" + ("s" if film.size != 1 else "")]
    given += [f"root {film.root}"] if algorithm.primitive.rooted else []
    given += [f"{film.segments} segment" + ("s" if film.segments != 1 else "")] if algorithm.pipelined else []
    given += [f"{len(set(film.hosts))} host" + ("s" if len(set(film.hosts)) != 1 else "")] if film.hosts else []
    return ", ".join(given)


def prose(film: Film) -> list[str]:
    """The paragraphs of the docstring, without its named lines."""
    paragraphs = (inspect.getdoc(film.algorithm.generator) or "").split("\n\n")
    return [" ".join(text.split()) for text in paragraphs if not text.startswith(tuple(f"{name}:" for name in FIELDS))]


def summary(film: Film) -> str:
    """The first paragraph of the docstring."""
    return prose(film)[0]


def caption(film: Film) -> list[str]:
    """A few lines of text: the costs, by formula and as counted."""
    lines = []
    for name, formula, counted in facts(film):
        lines.append(f"{name}: {counted}" + (f"  [{formula}]" if formula not in ("", counted.split()[0]) else ""))
    if film.hosts:
        crossing = film.counts.crossing.items()
        busy = max(sum(n for way, n in crossing if way[end] == host) for host in film.hosts for end in (0, 1))
        lines.append(f"A host's link, one way: {amount(busy)}")
    return lines

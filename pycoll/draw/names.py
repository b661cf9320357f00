"""Text for blocks, contributors and amounts in drawings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from ..schedule.costs import FIELDS, documented, formula_for
from ..schedule.hosts import without_domains
from ..schedule.moves import Block
from ..schedule.neighbors import Edge
from ..schedule.proof import Counts
from ..schedule.registry import counts_of
from .frames import DrawnMessage, Film, Frame
from .language import say

PRIME = "'"  # marks the second of several edges between two ranks


def block_name(film: Film, block: Block, arrow: str = "\u2192") -> str:
    """Name a block in a cell: number of a part or rank, source and destination, or owner and part."""
    match block:
        case int():
            return say("all") if film.algorithm.primitive.cuts and film.parts == 1 else str(block)
        case (str(), int(source)) if block == counts_of(source):
            return f"#{source}"
        case Edge(source, to, number):
            return f"{source}{arrow}{to}{PRIME * number}"
        case (int(source), int(to)) if exchanges(film):
            return f"{source}{arrow}{to}"
        case (int(source), int(part)):
            return f"{source}:{part}" if film.parts > 1 else say("of", rank=source)
        case (str(what), int(number), int(part)):
            return f"{what} {number}:{part}"
    return str(block)


def row_name(film: Film, block: Block) -> str:
    """Name a block at the left of its row."""
    primitive = film.algorithm.primitive
    match block:
        case int() if film.hears:
            return say("of", rank=block)
        case int() if primitive.reduces or primitive.cuts:
            return say("part", part=block) if film.parts > 1 else say("vector")
        case int():
            return say("block", block=block)
        case (str(), int(source)) if block == counts_of(source):
            return say("counts")
    return block_name(film, block)


def exchanges(film: Film) -> bool:
    """Return whether each rank has a block for each rank; rows are then positions in its buffers, not names."""
    primitive = film.algorithm.primitive
    return primitive.takes_all and primitive.gives_all


def runs(numbers: Sequence[int], between: str = ",") -> str:
    """Join numbers in their order; three or more consecutive ones become a range: 3,0-2."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    texts = [f"{group[0]}-{group[-1]}" if len(group) > 2 else between.join(map(str, group)) for group in groups]
    return between.join(texts)


def load(film: Film, message: DrawnMessage, arrow: str = "\u2192") -> str:
    """Name the blocks of a message briefly; an empty string if there is only one possibility."""
    blocks = message.blocks
    if not blocks or (film.parts == 1 and len(blocks) == 1 and isinstance(blocks[0], int)):
        return ""
    direct = Edge(message.source, message.to, 0) if film.neighborhood else (message.source, message.to)
    if exchanges(film) and blocks == (direct,):
        return ""
    numbers = [block for block in blocks if isinstance(block, int)]
    counts_from = [block[1] for block in blocks if isinstance(block, tuple) and block == counts_of(block[1])]
    if len(blocks) in (len(numbers), len(counts_from)):
        return runs(numbers) or "#" + runs(counts_from)
    if len(blocks) == 1:
        return block_name(film, blocks[0], arrow)
    return say("blocks", n=len(blocks))


def sentence(film: Film, message: DrawnMessage, arrow: str = "\u2192") -> str:
    """Describe a message: source, destination and blocks, with a plus if they are combined."""
    what = load(film, message, arrow)
    what = f"+{what or say('vector')}" if message.combined else what
    return f"{message.source}{arrow}{message.to}" + (f" [{what}]" if what else "")


def number(value: float) -> str:
    """Format a number with at most three significant digits and no trailing zeros."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def amount(vector: float, nbytes: float = 0) -> str:
    """Format an amount as a multiple of the bytes of the vector, plus further bytes."""
    terms = [f"{number(vector)} Z".removeprefix("1 ")] if vector else []
    return " + ".join([*terms, f"{number(nbytes)} B"] if nbytes else terms) or "0"


def _exchanged(film: Film, field: Callable[[Counts], Sequence[float]]) -> Sequence[float]:
    """Return the bytes of counts that each rank sends, receives or combines."""
    return field(film.counts_traffic) if film.counts_traffic else [0] * film.size


def by_rank(film: Film, field: Callable[[Counts], Sequence[float]]) -> list[str]:
    """Return the amount that each rank sends, receives or combines."""
    exchanged = _exchanged(film, field)
    return [amount(vector, nbytes) for vector, nbytes in zip(field(film.counts), exchanged)]


def busiest(film: Film, field: Callable[[Counts], Sequence[float]]) -> str:
    """Return the largest amount that a rank sends, receives or combines, for long vectors."""
    exchanged = _exchanged(film, field)
    return amount(*max(zip(field(film.counts), exchanged)))


def _of_ranks(film: Film, field: Callable[[Counts], Sequence[float]]) -> str:
    alike = len(set(by_rank(film, field))) == 1
    return say("per_rank" if alike else "on_the_busiest", amount=busiest(film, field))


def cost(film: Film) -> str:
    """Return the cost that the proof counts along the critical path, in the notation of the formulas."""
    counts, exchanged = film.counts, film.counts_traffic.beta if film.counts_traffic else 0
    return _sum([(counts.alpha, "alpha"), (exchanged, "beta"), (counts.beta, "Z*beta"), (counts.gamma, "Z*gamma")])


def cost_so_far(frame: Frame) -> str:
    """Return the cost of the critical path up to a frame, without the counts that ranks exchange first."""
    return _sum(list(zip(frame.cost, ("alpha", "Z*beta", "Z*gamma"))))


def _sum(terms: Sequence[tuple[float, str]]) -> str:
    return " + ".join(f"{number(factor)}*{unit}".removeprefix("1*") for factor, unit in terms if factor) or "0"


def facts(film: Film) -> list[tuple[str, str, str]]:
    """Return each quantity with its formula in the docstring and its count in the proof, for the busiest rank."""
    formulas, counts = documented(film.algorithm), film.counts
    each = "per_rank" if len(set(counts.messages)) == 1 else "on_the_busiest"
    here = {"Rounds": str(counts.rounds), "Messages": say(each, amount=max(counts.messages))}
    here["Sent"] = _of_ranks(film, lambda counts: counts.sent)
    here["Received"] = _of_ranks(film, lambda counts: counts.received)
    here["Cost"] = cost(film)
    nothing = [say(each, amount=0) for each in ("per_rank", "on_the_busiest")]
    shown = [name for name in here if name in formulas or here[name] not in nothing]
    return [(name, _formula(formulas.get(name, ""), film), here[name]) for name in shown]


def _formula(text: str, film: Film) -> str:
    formula, exact = (
        formula_for(text, film.size, film.algorithm.k) if film.size > 1 else ("", True)
    )  # with one rank nothing moves
    return formula if exact or not formula else say("at_most", formula=formula)


def unit(film: Film) -> str:
    """Explain the letter Z in amounts."""
    return say("unit_block") if film.neighborhood else "Z: bytes of the whole vector"


def setting(film: Film) -> str:
    """Describe the number of ranks and the other parameters."""
    algorithm, given = film.algorithm, [say("ranks_given", n=film.size)]
    given += [film.neighborhood.text] if film.neighborhood else []
    given += [say("root_given", rank=film.root)] if algorithm.primitive.rooted else []
    given += [say("segments_given", n=film.segments)] if algorithm.pipelined else []
    hosts = len(set(without_domains(film.hosts or ())))
    given += [say("hosts_given", n=hosts)] if film.hosts else []
    return say("comma").join(given)


def title(film: Film) -> str:
    """Return the title of a film: its algorithm and its parameters."""
    return say("on", algorithm=film.algorithm, setting=setting(film))


def prose(film: Film) -> list[str]:
    """Return the paragraphs of the docstring, without its named lines."""
    paragraphs = (inspect.getdoc(film.algorithm.generator) or "").split("\n\n")
    return [" ".join(text.split()) for text in paragraphs if not text.startswith(tuple(f"{name}:" for name in FIELDS))]


def summary(film: Film) -> str:
    """Return the first paragraph of the docstring."""
    return prose(film)[0]


def caption(film: Film) -> list[str]:
    """Return a few lines of text with the costs, counted and by formula."""
    lines = []
    for name, formula, counted in facts(film):
        lines.append(f"{name}: {counted}" + (f"  [{formula}]" if formula not in ("", counted.split()[0]) else ""))
    if film.hosts:
        crossing, hosts = film.counts.crossing.items(), set(without_domains(film.hosts))
        busy = max(sum(n for way, n in crossing if way[end] == host) for host in hosts for end in (0, 1))
        lines.append(f"Link of the busiest host, in one direction: {amount(busy)}")
    return lines

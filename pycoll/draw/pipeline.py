"""Time charts of pipelines: ``python -m pycoll.draw pipeline --schedule 1f1b -n 4 -m 8``."""

from __future__ import annotations

from textwrap import wrap

from ..schedule.pipeline import SCHEDULES, Backward, BackwardInput, BackwardWeights, Forward, MicrobatchWork
from ..schedule.timeline import Timeline, WorkSpan, timeline
from .language import say
from .markup import tag, words
from .sheet import XMLNS, style

UNIT, ROW, LABELS = 24.0, 26, 64
LINE, LETTER = 100, 6.0  # letters in a line of text, and the width of a letter in a picture
COLORS: dict[type[MicrobatchWork], str] = {Forward: "r0", Backward: "r2", BackwardInput: "r2", BackwardWeights: "r1"}
SIGNS: dict[type[MicrobatchWork], str] = {Forward: "F", Backward: "B", BackwardInput: "I", BackwardWeights: "W"}
MEANINGS: dict[type[MicrobatchWork], str] = {  # keys of words
    Forward: "forward",
    Backward: "backward",
    BackwardInput: "input_gradient",
    BackwardWeights: "weight_gradient",
}


def title(name: str, stages: int, batches: int, chunks: int) -> str:
    """Return the first line of a chart."""
    several = f", {chunks} chunks each" if chunks > 1 else ""
    return f"{name}: {stages} stages{several}, {batches} micro-batches"


def summary(chart: Timeline) -> str:
    """Return the figures of a chart."""
    kept = ", ".join(map(str, chart.kept))
    return f"bubble {chart.bubble:.1%} of the time; activations kept by each stage: {kept}"


def source(name: str) -> str:
    """Return the source of a schedule."""
    text = (SCHEDULES[name].work.__doc__ or "").partition("Source: ")[2]
    return "Source: " + " ".join(text.split())


def text(name: str, stages: int, batches: int, chunks: int = 1) -> str:
    """Return a chart as text, with a column for each unit of time."""
    chart = timeline(name, stages, batches, chunks)
    width = max(len(_label(span)) for spans in chart.stages for span in spans) + 1
    lines = [title(name, stages, batches, chunks), summary(chart), ""]
    for stage, spans in enumerate(chart.stages):
        cells = ["." * (width - 1)] * round(chart.total)
        for span in spans:
            for at in range(round(span.start), round(span.end)):
                cells[at] = _label(span) if at == round(span.start) else "-" * (width - 1)
        lines.append(f"stage {stage:<3} " + "".join(cell.ljust(width) for cell in cells))
    keys = "; ".join(f"{SIGNS[kind]}: {say(MEANINGS[kind])}" for kind in _kinds(chart))
    number = "number: micro-batch" + (" and chunk" if chunks > 1 else "")
    lines += ["", f"{keys}; {number}; .: idle", *wrap(source(name), LINE, break_on_hyphens=False)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def svg(name: str, stages: int, batches: int, chunks: int = 1) -> str:
    """Return a chart as an SVG document, with its title, its figures and its source."""
    body, width, tall = bars(name, stages, batches, chunks)
    head = title(name, stages, batches, chunks)
    figures = summary(timeline(name, stages, batches, chunks))
    width = max(width, LETTER * len(figures) + 32)
    sources = wrap(source(name), int((width - 32) / LETTER))
    height = 64 + tall + 17 * len(sources)
    lines = [
        tag("text", words(line), class_="label", x=16, y=80 + tall + 17 * number) for number, line in enumerate(sources)
    ]
    parts = [
        tag("title", words(head)),
        tag("style", words(style("drawing.css"))),
        tag("rect", class_="paper", x=0, y=0, width=width, height=height + 12),
        tag("text", words(head), class_="name", x=16, y=28),
        tag("text", words(figures), class_="label", x=16, y=48),
        tag("g", body, transform="translate(0 64)"),
        *lines,
    ]
    size = {"width": width, "height": height + 12, "viewBox": f"0 0 {width:.6g} {height + 12}"}
    return tag("svg", *parts, class_="drawing", xmlns=XMLNS, **size)


def bars(name: str, stages: int, batches: int, chunks: int = 1) -> tuple[str, float, float]:
    """Return the bars of all stages above their legend as SVG elements, with width and height."""
    chart = timeline(name, stages, batches, chunks)
    parts = []
    for stage, spans in enumerate(chart.stages):
        top = ROW * stage
        parts.append(tag("text", words(say("stage", stage=stage)), class_="label", x=16, y=top + 15))
        parts.append(tag("rect", class_="rests", x=LABELS, y=top, width=UNIT * chart.total, height=ROW - 4))
        parts += [_box(span, top, chunks) for span in spans]
    kinds = _kinds(chart)
    parts.append(_legend(kinds, ROW * stages + 22))
    return "".join(parts), max(LABELS + UNIT * chart.total, 140 * (len(kinds) + 1)) + 40, ROW * stages + 30


def _kinds(chart: Timeline) -> list[type[MicrobatchWork]]:
    """Return the kinds of work in a chart."""
    return [kind for kind in SIGNS if any(isinstance(span.work, kind) for spans in chart.stages for span in spans)]


def _label(span: WorkSpan) -> str:
    return f"{SIGNS[type(span.work)]}{span.work.batch}" + (f".{span.work.chunk}" if span.work.chunk else "")


def _box(span: WorkSpan, top: float, chunks: int) -> str:
    """Draw work as a box; later chunks are lighter."""
    width = UNIT * (span.end - span.start)
    left = LABELS + UNIT * span.start
    light = 1 - 0.6 * span.work.chunk / chunks
    work = {"kind": say(MEANINGS[type(span.work)]), "batch": span.work.batch, "chunk": span.work.chunk}
    size = {"width": width, "height": ROW - 4}
    return tag(
        "g",
        tag("title", words(say("micro_batch_work", **work))),
        tag("rect", class_=COLORS[type(span.work)], x=left, y=top, fill_opacity=light, **size),
        tag("rect", class_="edge", x=left, y=top, **size),
        tag("text", str(span.work.batch), class_="by", x=left + width / 2, y=top + 15, text_anchor="middle"),
    )


def _legend(kinds: list[type[MicrobatchWork]], top: float) -> str:
    parts = []
    for number, kind in enumerate(kinds):
        left = 16 + 140 * number
        parts.append(tag("rect", class_=COLORS[kind], x=left, y=top - 11, width=14, height=14))
        parts.append(tag("text", words(say(MEANINGS[kind])), class_="label", x=left + 20, y=top))
    parts.append(tag("text", words(say("micro_batches")), class_="label", x=16 + 140 * len(kinds), y=top))
    return "".join(parts)

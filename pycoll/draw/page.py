"""Self-contained HTML pages that play one film, or several films in parallel."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from types import CodeType

from ..schedule.costs import documented
from .frames import MANY, Film
from .language import language, say
from .legend import HEIGHT, WIDTH, Sample, definitions, legend, samples
from .markup import rows, tag, words
from .names import by_rank, cost_so_far, facts, prose, runs, sentence, unit
from .names import title as film_title
from .sheet import Picture, played, style

# the outlines of each icon, 16 by 16; the play button has two outlines, and the style sheet shows one of them
PLAY, PAUSE = "M4 2 13 8 4 14Z", "M4 2H7V14H4ZM9 2H12V14H9Z"
BUTTONS: list[tuple[str, tuple[str, ...]]] = [
    ("first", ("M2 2H4V14H2ZM14 2V14L5 8Z",)),
    ("back", ("M2 8 9 3V13ZM11 3H13V13H11Z",)),
    ("play", (PLAY, PAUSE)),
    ("next", ("M3 3H5V13H3ZM7 3 14 8 7 13Z",)),
    ("last", ("M2 2 11 8 2 14ZM12 2H14V14H12Z",)),
    ("loop", ("M3 9A5 5 0 0 1 11 4V2L15 5 11 8V6A3 3 0 0 0 5 9ZM13 7A5 5 0 0 1 5 12V14L1 11 5 8V10A3 3 0 0 0 11 7Z",)),
]
# the formats of exports; the script shows the buttons of those that the browser can write
FORMATS = {"svg": "SVG", "gif": "GIF", "video": ""}
Clock = Sequence[float]  # the simulated time at the end of each frame, in seconds


def document(title: str, body: str, scripts: str = "") -> str:
    """Return a complete HTML page that ends with the scripts, if any are given."""
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", words(title)),
        tag("link", rel="icon", href="data:,"),
        tag("style", style("drawing.css")),  # exported pictures have this style sheet, too
        tag("style", style("page.css")),
    ]
    content = tag("body", tag("main", body), scripts)
    return "<!doctype html>\n" + tag("html", tag("head", *head), content, lang=language()) + "\n"


def scripts(gif: str = "") -> str:
    """Return the scripts of the player; `gif` is the address of the GIF encoder, without which no GIF is offered."""
    encoder = tag("script", src=gif) if gif else ""
    return encoder + tag("script", style("player.js") + style("export.js"))


def page(film: Film) -> str:
    """Return a page for one film: the player, the costs, and the docstring of the algorithm."""
    title = film_title(film)
    body = [tag("h1", words(title)), *introduction(film), player([film]), described(film)]
    return document(title, "".join(body), scripts())


def introduction(film: Film) -> list[str]:
    """Return the description of the algorithm in its docstring."""
    return [tag("p", words(text)) for text in prose(film)]


def player(films: Sequence[Film], clocks: Sequence[Clock | None] | None = None) -> str:
    """Return controls with the films below them, all at the same time; a film that has ended shows its last frame.

    Films of the same number of ranks have the same scale, so that their blocks can be compared.
    The time is that of their clocks; without clocks, all frames take as long.  Each film shows its code, with the
    current lines marked, and the cost so far.
    """
    last = max(len(film.frames) for film in films) - 1
    buttons = [
        tag("button", _sign(outlines), type="button", title=say(do), aria_label=say(do), data_do=do)
        for do, outlines in BUTTONS
    ]
    slider = tag("input", type="range", min=0, max=last, value=0, aria_label=say("frame"))
    speeds = [tag("option", f"{speed}\u00d7", value=speed, selected=speed == "1") for speed in ("0.5", "1", "2", "4")]
    position = tag("output", f"0 / {last}", aria_live="polite")
    speed = tag("select", *speeds, aria_label=say("speed"))
    exports = [_export(kind, name or say("video")) for kind, name in FORMATS.items()]
    group = tag("span", *exports, class_="exports", role="group", aria_label=say("save"))
    controls = tag("div", *buttons, slider, position, speed, group, class_="controls")
    heads = tag("svg", definitions(), class_="drawing heads", width=0, height=0, aria_hidden="true")
    pictures, compact = zip(*(played(film, films) for film in films))
    stages = [_stage(*each, len(films)) for each in zip(films, pictures, clocks or [None] * len(films))]
    shown = tag("div", *stages, class_="films")
    explained = [*dict.fromkeys(chain(*map(legend, films))), *[say("low_key")] * any(compact)]
    keys = [tag("p", words(text), class_="keys") for text in [say("keys"), *explained]]
    keys.append(tag("p", *map(_key, dict.fromkeys(chain(*map(samples, films)))), class_="keys"))
    return tag("section", heads, controls, shown, *keys, class_="player")


def _export(kind: str, name: str) -> str:
    hint = say(f"save_{kind}")
    given = {"type": "button", "title": hint, "aria_label": hint, "data_save": kind, "hidden": kind != "svg"}
    return tag("button", words(name), **given)


def _key(sample: Sample) -> str:
    picture = tag("svg", sample.picture, class_="drawing", width=WIDTH, height=HEIGHT, aria_hidden="true")
    return tag("span", picture, words(sample.meaning), class_="sample")


def _sign(outlines: Sequence[str]) -> str:
    """Return an icon that needs no font."""
    return tag("svg", *(tag("path", d=outline) for outline in outlines), viewBox="0 0 16 16", aria_hidden="true")


def _stage(film: Film, pictures: Sequence[Picture], clock: Clock | None, beside: int) -> str:
    """Return all frames of one film, and its code; the script shows one frame, and marks its lines."""
    scale = max(1, min(1.7, 1000 / pictures[0][1] / beside)) if film.size <= MANY else 1
    drawn = [_svg(film, scale, picture) for picture in pictures]
    captions = [_counters(film, index, clock) + words(_said(film, index)) for index in range(len(film.frames))]
    if film.size > MANY:
        says = [tag("figcaption", caption, data_step=index) for index, caption in enumerate(captions)]
        frames = tag("figure", *drawn, class_="matrix") + tag("div", *says, class_="frames")
    else:
        pairs = enumerate(zip(drawn, captions))
        figures = [tag("figure", one, tag("figcaption", caption), data_step=index) for index, (one, caption) in pairs]
        frames = tag("div", *figures, class_="frames")
    given = {"data_clock": json.dumps([round(time, 9) for time in clock]) if clock else None}
    given["style"] = f"--natural:{_wide(pictures[0]):.6g}px;--tall:{_tall(pictures[0]):.6g}px"
    if beside == 1:
        return tag("article", frames, _codes(film), class_="film alone", **given)
    shown = tag("div", tag("h2", words(str(film.algorithm))), frames, class_="shown")
    return tag("article", shown, _codes(film), class_="film", **given)


def _counters(film: Film, index: int, clock: Clock | None) -> str:
    """Return the cost up to the end of a frame, and the simulated time."""
    texts = [say("cost_so_far", cost=cost_so_far(film.frames[index]))]
    texts += [say("simulated", time=f"{1e6 * clock[index]:.4g}")] if clock else []
    return tag("span", words(" \u00b7 ".join(texts)), class_="counters")


def _codes(film: Film) -> str:
    """Return the generator and those that it delegates to, each with the names of the active ranks in each frame."""
    shown = []
    for code, frames in film.lines.items():
        lines = [tag("span", words(line) or " ", data_line=number) for number, line in _without_docstring(code)]
        active = [{line: _named(ranks, film) for line, ranks in here.items()} for here in frames]
        shown.append(tag("p", words(Path(code.co_filename).name), class_="keys"))
        shown.append(tag("pre", tag("code", *lines), class_="code", data_active=json.dumps(active), tabindex=0))
    return tag("div", *shown, class_="codes")


def _without_docstring(code: CodeType) -> list[tuple[int, str]]:
    """Return the lines of a function with their numbers, from 0, and without those of its docstring."""
    source = textwrap.dedent(inspect.getsource(code))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    text = function.body[0] if ast.get_docstring(function) else None
    hidden = range(text.lineno - 1, text.end_lineno or 0) if text else ()
    return [(number, line) for number, line in enumerate(source.splitlines()) if number not in hidden]


def _named(ranks: Sequence[int], film: Film) -> str:
    if len(ranks) == film.size:
        return say("all_ranks")
    return say("some_ranks", n=len(ranks), ranks=runs(ranks))


def _svg(film: Film, scale: float, picture: Picture) -> str:
    return tag(
        "svg",
        picture[0],
        class_="drawing",
        role="img",
        aria_label=film_title(film),
        viewBox=f"-8 -2 {_wide(picture):.6g} {_tall(picture):.6g}",
        preserveAspectRatio="xMinYMin",
        style=f"width:{scale * _wide(picture):.6g}px",
    )


def _wide(picture: Picture) -> float:
    """Return the width of a picture with a margin, so that strokes and marks at the edge are not clipped."""
    return picture[1] + 16


def _tall(picture: Picture) -> float:
    """Return its height with a margin."""
    return picture[2] + 4


def _said(film: Film, index: int) -> str:
    """Describe the messages and local moves of a frame."""
    frame = film.frames[index]
    if frame.local:
        return say("only_local")
    if not frame.messages:
        return say("before_first") if index == 0 else ""
    texts = [sentence(film, message) for message in frame.messages]
    shown = texts if len(texts) <= 24 else [*texts[:24], say("more", n=len(texts) - 24)]
    return say("step_messages", step=frame.step, messages=", ".join(shown))


def described(film: Film) -> str:
    """Return formulas with counts, the load of each rank, limits and source."""
    doc = documented(film.algorithm)
    heading = ["", say("formula"), say("here", p=film.size)]
    cells = [
        [say(name), tag("code", words(formula)) if formula else "", words(here)] for name, formula, here in facts(film)
    ]
    if film.neighborhood:  # the counts depend on the topology, so there are no formulas
        heading, *cells = [[name, here] for name, _, here in (heading, *cells)]
    formulas = tag("table", rows([heading], "th"), rows(cells))
    notes = [tag("p", words(unit(film) if film.neighborhood else say("notation")), class_="quiet")]
    notes += [tag("p", tag("b", f"{say(name)}: "), words(doc[name])) for name in ("Limits", "Source") if name in doc]
    return tag("section", tag("h2", say("costs")), scroll(formulas), scroll(loads(film)), *notes)


def loads(film: Film) -> str:
    """Return a table with the messages and bytes of each rank."""
    table = [[say("messages"), *map(str, film.counts.messages)]]
    table.append([say("sent"), *by_rank(film, lambda counts: counts.sent)])
    table.append([say("received"), *by_rank(film, lambda counts: counts.received)])
    table += (
        [[say("combined"), *by_rank(film, lambda counts: counts.combined)]] if film.algorithm.primitive.reduces else []
    )
    moved = [row for row in table if set(row[1:]) != {"0"}]
    heading = rows([[say("rank"), *map(str, range(film.size))]], "th")
    return tag("table", heading, rows([[words(cell) for cell in row] for row in moved]))


def scroll(table: str) -> str:
    """Wrap a table so that it scrolls separately in a narrow window."""
    return tag("div", table, class_="scroll")

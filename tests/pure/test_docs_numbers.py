"""Limits and sizes in the documentation are those in the code."""

import re
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")

from pycoll.base import settings
from pycoll.compiler.program import SLOTS
from pycoll.compiler.programs import compiled
from pycoll.compiler.slots import MEDIUM
from pycoll.parallel.pipeline import PIECE
from pycoll.parallel.ps.worker import MOST_LENT
from pycoll.runtime.progress_thread import INTERVAL
from pycoll.runtime.recording.recorder import EVENT
from pycoll.selection.rules import REGISTERED_FROM
from pycoll.selection.tuning_file import AS_GOOD
from pycoll.trace.session import MOST, PATIENCE
from pycoll.tune.options import size_label

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("no", "one", "two", "three", "four")


def defined(name, file):
    """Return a constant of the compiled core, which Python does not see."""
    found = re.search(rf"{name} =? ?\(?(1 << )?(\d+)", (ROOT / "pycoll/core" / file).read_text(encoding="utf-8"))
    return 1 << int(found[2]) if found[1] else int(found[2])


def defaults(sizes):
    return "({}; {} between hosts)".format(*map(size_label, sizes))


SEGMENT = defaults(settings.DEFAULT_SEGMENTS).replace(
    ";", f", {size_label(settings.SEGMENT_OF_REDUCTIONS)} in reductions;"
)
DEVICE_SEGMENT = defaults(settings.DEFAULT_DEVICE_SEGMENTS)
PIPELINE = defaults(settings.DEFAULT_PIPELINES)
ENTRY = size_label(defined("ENTRY_SIZE", "mailboxes.h"))
YIELDS, SOON = (f"{defined(name, 'waiting.pxd') / 1e6:g} ms" for name in ("PATIENCE", "SOON"))
EVENTS = size_label(settings.EVENTS * EVENT.size)
STATED = {
    "docs/guide/selection.md": [
        f"instead of the size in the rules ({size_label(REGISTERED_FROM)})",
        f"is within {AS_GOOD - 1:.0%} of the fastest",
    ],
    "docs/guide/zh/selection.md": [
        f"内置规则中的 {size_label(REGISTERED_FROM)}",
        f"慢不超过 {AS_GOOD - 1:.0%}",
    ],
    "docs/guide/registered.md": [
        f"calls with less than {size_label(REGISTERED_FROM)}",
        f"at most {WORDS[MOST_LENT]} gradients at a time",
    ],
    "docs/guide/gpu.md": ["{}, or {} between hosts".format(*map(size_label, settings.DEFAULT_DEVICE_SEGMENTS))],
    "docs/guide/install.md": [
        f"a message in bytes {SEGMENT}",
        f"buffers in GPU memory {DEVICE_SEGMENT}",
        f"pipelined algorithms in bytes {PIPELINE}",
        f"keeps in a trace ({settings.EVENTS}, in {EVENTS})",
    ],
    "pycoll/base/settings.py": [
        f"the longest message, in bytes {SEGMENT}",
        f"buffers in GPU memory {DEVICE_SEGMENT}",
        f"pipelined algorithms, in bytes {PIPELINE}",
        f"keeps in the trace ({settings.EVENTS}: {EVENTS})",
    ],
    "docs/guide/communicator.md": [
        f"Short objects (up to {size_label(SLOTS[MEDIUM][0])}",
        f"pickled, up to {size_label(defined('MOST_ENCODED', 'objects.pyx'))} (or",
        f"more than {defined('FEW', 'objects.pyx')} strings",
        f"and sleeps after {YIELDS}",
    ],
    "docs/guide/nonblocking.md": [f"every {INTERVAL * 1e6:.0f} microseconds"],
    "docs/guide/model_parallelism.md": [f"pieces of {size_label(PIECE)}"],
    "docs/guide/tracing.md": [
        f"last {settings.EVENTS} events in a file of {EVENTS}",
        f"last {MOST} events of all ranks",
        f"more than {PATIENCE:.0f} s apart",
    ],
    "docs/how-it-works.md": [
        f"{WORDS[defined('ENTRIES', 'mailboxes.h')]} entries of {ENTRY}",
        f"a message of up to {size_label(defined('SHORT_MESSAGE', 'mailboxes.h'))}",
        f"For {YIELDS} it then yields its core",
        f"While MPI transmits at least {size_label(defined('LONG', 'waiting.pxd'))}, it sleeps for "
        f"{defined('NAP', 'waiting.pxd') / 1e6:g} ms between two looks after {SOON}",
    ],
    "pycoll/README.md": [f"keeps the last {compiled.cache_info().maxsize}"],
}


@pytest.mark.parametrize("page, text", [(page, text) for page, texts in STATED.items() for text in texts])
def test_the_text_has_the_number_in_the_code(page, text):
    assert text in " ".join((ROOT / page).read_text(encoding="utf-8").split())

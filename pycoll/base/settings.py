"""Settings, from environment variables or `configure`.

All except PYCOLL_CUDA_AWARE, PYCOLL_DEVICE_STAGED and PYCOLL_PLACE must be the same on all ranks.  Numbers of bytes may
end with K, M or G: 64K.

| variable | meaning |
|---|---|
| ``PYCOLL_CUDA_AWARE`` | auto, 0 or 1: whether to pass GPU addresses to MPI (see `pycoll.runtime.gpu.cuda_aware`) |
| ``PYCOLL_SEGMENT`` | the longest message, in bytes (4 MiB, 1 MiB in reductions; 56 KiB between hosts) |
| ``PYCOLL_DEVICE_SEGMENT`` | the longest message between buffers in GPU memory (64 MiB; 4 MiB between hosts) |
| ``PYCOLL_DEVICE_STAGED`` | the longest buffers in GPU memory that are always staged, in bytes (0) |
| ``PYCOLL_PIPELINE`` | the segment size of pipelined algorithms, in bytes (128 KiB; 16 KiB between hosts) |
| ``PYCOLL_ALLREDUCE``, ... | the algorithm of a primitive, if neither the call nor its communicator names one |
| ``PYCOLL_NATIVE`` | 0: `pycoll.Comm` leaves only those calls to MPI that pycoll does not support (1) |
| ``PYCOLL_REGISTERED`` | 0: arrays of `pycoll.empty` and of the drivers are in ordinary memory (1) |
| ``PYCOLL_SHARED_MEMORY`` | 0: ranks of a host use messages even if the compiled core was built (1) |
| ``PYCOLL_TUNING`` | a tuning file from ``python -m pycoll.tune`` (see `pycoll.selection.tuning_file`), or ``off`` |
| ``PYCOLL_PLACE`` | overrides the domains that the system reports: socket=0,numa=1 (see `pycoll.base.domains`) |
| ``PYCOLL_EXECUTOR`` | core (the default if it was built), python or reference: what runs calls in host memory |
| ``PYCOLL_CHECK`` | 1: each call first compares its arguments across ranks |
| ``PYCOLL_TIMEOUT`` | the longest time that a collective or a message may take, in seconds |
| ``PYCOLL_TRACE`` | the directory for a trace of the run (see `pycoll.trace`) |
| ``PYCOLL_TRACE_EVENTS`` | the number of events that each rank keeps in the trace (524288: 20 MiB) |
| ``PYCOLL_WATCH`` | the directory where each rank notes in which collective it is (see `pycoll.watch`) |
| ``PYCOLL_TRACEBACK`` | ``full``: tracebacks of `pycoll.abort_on_exception` show the frames of pycoll |
| ``PYCOLL_LOG`` | ``algorithms``: log which algorithm each new kind of call runs, and why |
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from . import hooks
from .numbers import bytes_in, check_positive

if TYPE_CHECKING:
    import logging

# the variables that are read here; each primitive has another one
VARIABLES = (
    *("PYCOLL_CUDA_AWARE", "PYCOLL_SEGMENT", "PYCOLL_PIPELINE", "PYCOLL_TUNING", "PYCOLL_CHECK", "PYCOLL_TIMEOUT"),
    *("PYCOLL_NATIVE", "PYCOLL_REGISTERED", "PYCOLL_DEVICE_SEGMENT", "PYCOLL_DEVICE_STAGED"),
    *("PYCOLL_TRACE", "PYCOLL_TRACE_EVENTS", "PYCOLL_WATCH", "PYCOLL_LOG"),
    *("PYCOLL_EXECUTOR", "PYCOLL_SHARED_MEMORY", "PYCOLL_TRACEBACK", "PYCOLL_PLACE"),
)


def _bytes_from(variable: str, least: int = 1) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        number = bytes_in(text)
    except ValueError:
        number = -1
    if number < least:
        kind = "positive" if least else "nonnegative"
        example = "for example 65536 or 64K"
        raise ValueError(f"environment variable {variable}={text!r} is not a {kind} number of bytes, {example}")
    return number


def _events_from(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"environment variable {variable}={text!r} is not a positive number of events")
    return int(text)


def _seconds_from(variable: str) -> float | None:
    text = os.environ.get(variable, "")
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = 0.0
    if seconds is not None and not seconds > 0:
        raise ValueError(f"environment variable {variable}={text!r} is not a positive number of seconds")
    return seconds


def _switch_from(variable: str, default: str = "0") -> bool:
    text = os.environ.get(variable) or default
    if text not in ("0", "1"):
        raise ValueError(f"environment variable {variable}={text!r} is neither 0 nor 1")
    return text == "1"


def _executor_from_environment() -> str:
    text = os.environ.get("PYCOLL_EXECUTOR", "")
    if text and text not in EXECUTORS:
        raise ValueError(f"environment variable PYCOLL_EXECUTOR={text!r} is not one of: {', '.join(EXECUTORS)}")
    return text


EXECUTORS = "core", "python", "reference"


def cuda_aware() -> str:
    """The value of ``PYCOLL_CUDA_AWARE``."""
    text = os.environ.get("PYCOLL_CUDA_AWARE") or "auto"
    if text not in ("auto", "0", "1"):
        raise ValueError(f"environment variable PYCOLL_CUDA_AWARE={text!r} is not one of: auto, 0, 1")
    return text


cuda_aware()  # a wrong value is refused on hosts without a GPU too


def _word_from(variable: str, word: str) -> str:
    text = os.environ.get(variable, "")
    if text not in ("", word):
        raise ValueError(f"environment variable {variable}={text!r} is not {word!r}")
    return text


EVENTS = 1 << 19  # events that each rank keeps in a trace, by default: 20 MiB

# None selects the defaults: the first one within a host, the second one between hosts, where TCP messages of Open MPI
# above 64 KiB wait for their receivers
SEGMENT = _bytes_from("PYCOLL_SEGMENT")
PIPELINE = _bytes_from("PYCOLL_PIPELINE")
DEFAULT_SEGMENTS = 4 << 20, 56 << 10
SEGMENT_OF_REDUCTIONS = 1 << 20  # within a host: it is still in cache when it is combined
# Measured with two ranks on one GPU: segments of 4 MiB take three times as long as those of 64 MiB, longer
# ones take the same time.  Between hosts, by estimate: a network of 400 Gbit/s transmits 2 to 3 MiB in the time of a
# launch and a wait.
DEVICE_SEGMENT = _bytes_from("PYCOLL_DEVICE_SEGMENT")
DEFAULT_DEVICE_SEGMENTS = 64 << 20, 4 << 20
DEVICE_STAGED = _bytes_from("PYCOLL_DEVICE_STAGED", least=0) or 0  # not measured; ranks may differ
DEFAULT_PIPELINES = 128 << 10, 16 << 10
CHECK = _switch_from("PYCOLL_CHECK")
NATIVE = _switch_from("PYCOLL_NATIVE", "1")
REGISTERED = _switch_from("PYCOLL_REGISTERED", "1")
SHARED_MEMORY = _switch_from("PYCOLL_SHARED_MEMORY", "1")
EXECUTOR = _executor_from_environment()
TIMEOUT = _seconds_from("PYCOLL_TIMEOUT")
TRACE = os.environ.get("PYCOLL_TRACE")
TRACEBACK = _word_from("PYCOLL_TRACEBACK", "full")
WATCH = os.environ.get("PYCOLL_WATCH")
TRACE_EVENTS = _events_from("PYCOLL_TRACE_EVENTS") or EVENTS


def longest(several_hosts: bool, reduces: bool = False, tuned: int | None = None) -> int:
    """The longest message in bytes; `tuned` is the value that was measured to be the best."""
    default = SEGMENT_OF_REDUCTIONS if reduces and not several_hosts else DEFAULT_SEGMENTS[several_hosts]
    return min(SEGMENT or tuned or default, 1 << 30)  # counts of MPI have 31 bits


def longest_on_gpu(several_hosts: bool) -> int:
    """The longest message between buffers in GPU memory, in bytes."""
    return DEVICE_SEGMENT or SEGMENT or DEFAULT_DEVICE_SEGMENTS[several_hosts]


def pipeline(several_hosts: bool, tuned: int | None = None) -> int:
    """The segment size of pipelined algorithms in bytes; `tuned` is the value that was measured to be the best."""
    return PIPELINE or tuned or DEFAULT_PIPELINES[several_hosts]


def segments(nbytes: int, several_hosts: bool = False, tuned: int | None = None) -> int:
    """The number of segments into which a pipelined algorithm cuts a vector."""
    return max(1, -(-nbytes // pipeline(several_hosts, tuned)))


_UNCHANGED: Any = object()


def configure(
    *, segment: int | None = _UNCHANGED, pipeline: int | None = _UNCHANGED, device_segment: int | None = _UNCHANGED
) -> None:
    """Set the segment sizes in bytes, to the same values on all ranks; None selects the default."""
    global SEGMENT, PIPELINE, DEVICE_SEGMENT
    for name, value in (("segment", segment), ("pipeline", pipeline), ("device_segment", device_segment)):
        if value is not None and value is not _UNCHANGED:
            check_positive(name, value, "number of bytes")
    SEGMENT = SEGMENT if segment is _UNCHANGED else segment
    PIPELINE = PIPELINE if pipeline is _UNCHANGED else pipeline
    DEVICE_SEGMENT = DEVICE_SEGMENT if device_segment is _UNCHANGED else device_segment
    hooks.begin_epoch()


def logger() -> logging.Logger | None:
    """The logger of choices, if it is enabled: without an import of logging, it is not, and the import takes time."""
    if "logging" not in sys.modules:
        return None
    import logging

    found = logging.getLogger("pycoll.algorithms")
    return found if found.isEnabledFor(logging.DEBUG) else None


def start_logging() -> None:
    """Start logging, if `PYCOLL_LOG` asks for it."""
    if _word_from("PYCOLL_LOG", "algorithms"):
        import logging

        logger = logging.getLogger("pycoll.algorithms")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)


start_logging()

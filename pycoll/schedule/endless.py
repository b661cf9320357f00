"""A time limit for the rounds of schedules: a generator that never yields would otherwise run forever."""

from __future__ import annotations

import signal

from .moves import Schedule

LIMIT = 5.0  # seconds of processor time for one round

_limited = False


def limit_rounds() -> None:
    """Limit the time of all rounds of this process, which must be taken in its main thread, to `LIMIT` from now on."""
    global _limited
    signal.signal(signal.SIGVTALRM, _end)
    _limited = True


def _end(number: int, frame: object) -> None:
    raise TimeoutError(f"no round within {LIMIT:g} s: does the schedule ever yield?")


def timed(schedule: Schedule) -> Schedule:
    """Return the rounds of a schedule; each raises TimeoutError after `LIMIT`, if this process has the limit."""
    return _timed(iter(schedule)) if _limited else schedule


def _timed(rounds: Schedule) -> Schedule:
    while True:
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
        try:
            following = next(rounds)
        except StopIteration:
            return
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        yield following

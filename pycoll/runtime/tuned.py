"""The tuning file of this process, and its measurement for a communicator."""

from __future__ import annotations

from functools import cache

from ..selection import tuning_file
from ..selection.select import CommFacts
from . import native
from .channel import Channel


@cache
def usable_tuning_file() -> tuple[tuning_file.TuningFile | None, str]:
    """The tuning file if there is a usable one, and a warning if the file cannot be used."""
    path = tuning_file.path_in_use()
    if path is None:
        return None, ""
    try:
        file = tuning_file.read(path)
        if native.library() not in file.libraries():
            raise tuning_file.InvalidTuningFile(
                f"it was measured with {', '.join(file.libraries())}; this is {native.library()}"
            )
        return file, ""
    except tuning_file.InvalidTuningFile as error:
        return None, f"the tuning file {path} is not used: {error}"


def fitting(facts: CommFacts) -> tuning_file.Tuned | None:
    """The measurement that fits a communicator, or None."""
    file = usable_tuning_file()[0] if facts.one_tuning_file else None
    return file.fitting(native.library(), facts.size, facts.host_count) if file else None


def tuning_state(channel: Channel) -> str:
    """Whether a tuning file is in use, in words."""
    tuned, facts = channel.tuned, channel.facts
    if tuned:
        return f"{tuned.path}, measured {tuned.environment.get('date', 'at an unknown time')}"
    if not facts.one_tuning_file:
        return "none, the ranks have different files"
    file, warning = usable_tuning_file()
    if file:
        return f"none, {file.path} has no measurement of {facts.size} ranks on {facts.host_count} hosts"
    return f"none, {warning}" if warning else "none"

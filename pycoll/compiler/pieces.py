"""Cuts messages that are slightly longer than the eager limit of MPI into eager pieces.

MPI sends an eager message without waiting for the receiver.  A longer message begins with a handshake, which takes
longer than another eager message (see `pycoll.runtime.eager`).  All pieces of a message are started, and awaited, where
the message was, so they can deadlock no more than the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .program import Message, Program, Region, Start, Step, Wait


def in_pieces(program: Program, eager: Sequence[int], most: int) -> Program:
    """Cut the messages of a program into at most `most` pieces; messages that would need more are sent whole.

    `eager` is the eager limit of messages to each rank, or 0 for whole messages; empty if all messages are whole.
    """
    cuts = [_cut(message, eager, most) for message in program.messages]
    if all(len(regions) == 1 for regions in cuts):
        return program
    messages: list[Message] = []
    numbers: list[range] = []  # of the pieces of each message
    for message, regions in zip(program.messages, cuts):
        numbers.append(range(len(messages), len(messages) + len(regions)))
        messages += [message._replace(region=region) for region in regions]
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, Start | Wait):
            steps += [type(step)(number) for number in numbers[step.message]]
        else:
            steps.append(step)
    return replace(program, steps=steps, messages=messages)


def _cut(message: Message, eager: Sequence[int], most: int) -> list[Region]:
    limit = eager[message.peer] if eager else 0
    return message.region.cut(limit) if limit < message.region.size <= most * limit else [message.region]

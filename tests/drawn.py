"""How many cases tests draw."""

from hypothesis import settings


def examples(number: int) -> settings:
    """So many, or a share of them if the profile is one with fewer than usual, as without ``python -m tests --all``.

    For use as a decorator, in place of ``settings(max_examples=number)``.
    """
    return settings(max_examples=max(1, number * settings.default.max_examples // 100))

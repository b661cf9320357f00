"""Number of examples that Hypothesis draws in a test."""

from hypothesis import settings


def examples(number: int) -> settings:
    """Return settings with `number` examples, or fewer in the quick profile of ``python -m tests`` without --all.

    Use it as a decorator, instead of ``settings(max_examples=number)``.
    """
    return settings(max_examples=max(1, number * settings.default.max_examples // 100))

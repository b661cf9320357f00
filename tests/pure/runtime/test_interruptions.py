"""Exceptions raised by signal handlers are delayed until the end of a block."""

import signal
import threading

import pytest

from pycoll.runtime.interruptions import interruptions_delayed


class Interrupted(Exception):
    pass


@pytest.fixture
def handled():
    """Install a handler that raises Interrupted, and return the list of signals that it has handled."""
    numbers = []

    def handler(number, frame):
        numbers.append(number)
        raise Interrupted(len(numbers))

    before = {number: signal.signal(number, handler) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield numbers
    assert all(signal.getsignal(number) is handler for number in before)
    for number, original in before.items():
        signal.signal(number, original)


def test_the_exception_comes_at_the_end_and_the_handler_runs_at_once(handled):
    seen = []
    with pytest.raises(Interrupted), interruptions_delayed():
        signal.raise_signal(signal.SIGUSR1)
        seen = handled[:]
    assert seen == [signal.SIGUSR1]


def test_the_second_exception_is_raised_at_once(handled):
    with pytest.raises(Interrupted, match="2"), interruptions_delayed():
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
        raise AssertionError
    assert handled == [signal.SIGUSR1, signal.SIGUSR2]


def test_the_end_of_a_block_inside_another_raises_nothing(handled):
    reached = []
    with pytest.raises(Interrupted), interruptions_delayed():
        with interruptions_delayed():
            signal.raise_signal(signal.SIGUSR1)
        reached.append(True)
    assert reached
    with pytest.raises(Interrupted):  # outside the blocks, exceptions are raised at once again
        signal.raise_signal(signal.SIGUSR1)


def test_an_error_inside_is_raised_instead(handled):
    with pytest.raises(ValueError, match="made up"), interruptions_delayed():
        signal.raise_signal(signal.SIGUSR1)
        raise ValueError("made up")


def test_ctrl_c_is_delayed_too(request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    done = []
    with pytest.raises(KeyboardInterrupt), interruptions_delayed():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_was_installed_inside_stays(handled):
    original = signal.getsignal(signal.SIGUSR1)
    with interruptions_delayed():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    signal.signal(signal.SIGUSR1, original)


def test_other_threads_leave_the_handlers_alone(handled):
    seen = []

    def inside():
        with interruptions_delayed():
            seen.append(signal.getsignal(signal.SIGUSR1))

    expected = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [expected]


def test_handlers_are_restored_if_the_second_exception_is_raised_at_the_end(handled):
    block = interruptions_delayed()
    block.__enter__()
    signal.raise_signal(signal.SIGUSR1)
    with pytest.raises(Interrupted, match="2"):
        signal.raise_signal(signal.SIGUSR2)  # as if it came when `__exit__` is called, which then does nothing
    with pytest.raises(Interrupted, match="3"), interruptions_delayed():
        signal.raise_signal(signal.SIGUSR1)
        handled.append("the next block delays again")
    assert "the next block delays again" in handled

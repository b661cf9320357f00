"""Tracebacks without the frames of pycoll."""

import pytest

from pycoll.base import settings
from pycoll.base.tracebacks import formatted
from pycoll.schedule.registry import find

HINT = "PYCOLL_TRACEBACK=full"


def caught(function, *arguments):
    try:
        function(*arguments)
    except BaseException as error:
        return error


def fail():
    find("allreduce", "no such algorithm")


def test_only_frames_of_the_program_are_shown(monkeypatch):
    text = formatted(caught(fail))
    assert text.startswith("Traceback (most recent call last):\n") and "in fail\n" in text and HINT in text
    assert "registry.py" not in text and "ValueError: " in text
    monkeypatch.setattr(settings, "TRACEBACK", "full")
    text = formatted(caught(fail))
    assert "in fail\n" in text and "registry.py" in text and HINT not in text


def test_causes_are_shown_too():
    def again():
        try:
            fail()
        except ValueError as error:
            raise KeyError("the other one") from error

    text = formatted(caught(again))
    assert text.index("ValueError: ") < text.index("direct cause") < text.index("KeyError: 'the other one'")
    assert "in fail\n" in text and "in again\n" in text and "registry.py" not in text


def test_an_error_inside_pycoll_alone_is_shown_whole():
    error = caught(fail)
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # without the frames of this file
    assert "registry.py" in formatted(error) and HINT not in formatted(error)


def test_an_error_without_frames_of_pycoll_is_shown_as_by_python():
    error = caught(lambda: {}["key"])
    assert formatted(error).endswith("KeyError: 'key'\n") and HINT not in formatted(error)


def test_a_syntax_error_names_its_line(tmp_path):
    from pycoll.run import run_file

    (program := tmp_path / "program.py").write_text("a b")
    error = caught(run_file, str(program))
    error.__traceback__ = error.__traceback__.tb_next  # without the frame of this file
    text = formatted(error)
    assert text.startswith(f'  File "{program}", line 1\n') and "SyntaxError: invalid syntax\n" in text


@pytest.mark.parametrize("group", [False, True])
def test_errors_that_refer_to_each_other(group):
    error = caught(fail)
    error.__cause__ = other = KeyError("other")
    other.__context__ = error
    if group:
        try:
            error = ExceptionGroup("several", [error])
        except NameError:
            pytest.skip("Python 3.10 has no groups")
    text = formatted(error if not group else caught(raised, error))
    assert "registry.py" not in text and "KeyError: 'other'" in text


def raised(error):
    raise error

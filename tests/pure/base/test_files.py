"""Files that are replaced atomically: their modes, and what is left after an error."""

import os
import stat

import pytest

from pycoll.base.files import write_atomically, write_json, write_text


@pytest.fixture(params=[0o022, 0o077, 0o027], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_has_the_mode_of_the_umask(tmp_path, umask):
    write_json(tmp_path / "new.json", {})
    assert mode(tmp_path / "new.json") == 0o666 & ~umask


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o666], ids=oct)
def test_a_replaced_file_keeps_its_mode(tmp_path, umask, kept):
    path = tmp_path / "old.json"
    path.touch()
    path.chmod(kept)
    write_json(path, {})
    assert mode(path) == kept


def test_no_other_user_can_read_the_new_version_of_a_private_file(tmp_path):
    path, seen = tmp_path / "private", []
    path.touch()
    path.chmod(0o600)
    write_atomically(path, lambda file: seen.extend(mode(each) for each in tmp_path.iterdir()))
    assert seen == [0o600, 0o600]


def test_a_file_can_take_the_mode_of_another(tmp_path, umask):
    like = tmp_path / "like"
    write_atomically(tmp_path / "first", lambda file: None, like)
    assert mode(tmp_path / "first") == 0o666 & ~umask
    like.touch()
    like.chmod(0o600)
    write_atomically(tmp_path / "second", lambda file: None, like)
    assert mode(tmp_path / "second") == 0o600


def test_a_link_stays(tmp_path):
    (tmp_path / "link").symlink_to("file")
    for text in ("first", "second"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == text


def test_a_pipe_is_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "text")
    assert os.read(reader, 9) == b"text" and not (tmp_path / "pipe").is_file()
    os.close(reader)


def test_an_error_leaves_the_old_version(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"new")
        raise OSError

    with pytest.raises(OSError):
        write_atomically(path, fail)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]

"""The source distribution has everything that a packager needs to run the tests."""

import shutil
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Build the source distribution of a copy of the checkout; return the names of its files, and its metadata."""
    pytest.importorskip("setuptools")
    listed = ["git", "ls-files"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True) if shutil.which("git") else None
    if not found or found.returncode:
        pytest.skip("this is no checkout of git")
    names = {name for name in found.stdout.splitlines() if (ROOT / name).is_file()}
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(target)]
    subprocess.run(command, check=True, cwd=source, timeout=240)
    (archive,) = target.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        inside = {member.name.partition("/")[2]: member for member in content.getmembers() if member.isfile()}
        about = content.extractfile(inside["PKG-INFO"]).read().decode()
    return names, set(inside), Parser().parsestr(about)


@pytest.mark.slow
def test_all_files_are_in_it(sdist):
    names, inside, _ = sdist
    made = {"PKG-INFO", *(name for name in inside if name.startswith("pycoll_mpi.egg-info/"))}
    assert (names - inside, inside - names) == ({".gitignore"}, made)


@pytest.mark.slow
def test_metadata(sdist):
    about = sdist[2]
    version = about["Version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert version in (ROOT / "CHANGELOG.md").read_text()
    text = about.get_payload()
    assert "](docs/" not in text and "](README.zh.md)" not in text and "](https://mpi4py.readthedocs.io)" in text

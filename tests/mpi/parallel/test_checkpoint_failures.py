"""Checkpoint files, and errors of save and load: all ranks raise, and the previous state is kept."""

import errno
import io
import json
import os

import numpy as np
import pytest

from pycoll.parallel import DistributedDataParallel, TopK, save
from tests.mpi.native import RANK, SIZE, WORLD

from .test_checkpoint import (
    BUCKETS,
    KINDS,
    SHAPES,
    Replicas,
    Sharded,
    assert_equal,
    free,
    loaded,
    model,
    saved,
    several,
)

pytestmark = pytest.mark.mpi
DEDICATED = ["ps dedicated"] if SIZE > 1 else []


def files(path):
    """Return the names and contents of the files in the folder; all ranks call it."""
    WORLD.Barrier()
    found = {file.name: file.read_bytes() for file in path.iterdir()}
    WORLD.Barrier()
    return found


def breaks(monkeypatch, module, name, call=1):
    """Make one call of a function fail as if the disk were full."""
    original, calls = getattr(module, name), []

    def function(*arguments, **options):
        calls.append(name)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(*arguments, **options)

    monkeypatch.setattr(module, name, function)


def fails(monkeypatch, rank, run, path, *place):
    with monkeypatch.context() as patch:
        if rank == RANK:
            breaks(patch, *place)
        kind, pattern = (OSError, "No space") if rank == RANK else (RuntimeError, f"rank {rank} could not write")
        with pytest.raises(kind, match=pattern):
            saved(run, path, "new")


def holds(path, kind, extra, whole):
    fresh = KINDS[kind]("momentum")
    assert loaded(fresh, path) == extra
    assert_equal(fresh.whole(), whole)
    free(fresh)


@pytest.mark.parametrize(
    "place",
    [(np, "savez"), (os, "fsync"), (os, "fsync", 2), (os, "replace")],
    ids=["savez", "fsync", "fsync of the directory", "replace"],
)
@pytest.mark.parametrize(
    "kind, rank", sorted({(kind, rank) for kind in ["fsdp", *DEDICATED] for rank in (0, SIZE - 1)})
)
def test_a_part_that_cannot_be_written(directory, monkeypatch, place, kind, rank):
    run = KINDS[kind]("momentum", parameters=model())
    run.train(range(2))
    saved(run, directory, "old")
    whole, before = run.whole(), files(directory)
    run.train(range(2, 3))
    fails(monkeypatch, rank, run, directory, *place)
    assert files(directory) == before
    holds(directory, kind, "old", whole)
    saved(run, directory, "new")
    assert len(files(directory)) == len(before)
    holds(directory, kind, "new", run.whole())
    free(run)


@pytest.mark.parametrize("place", [(os, "fsync", 3), (os, "replace", 2)], ids=["fsync", "replace"])
def test_a_manifest_that_cannot_be_written(directory, monkeypatch, place):
    run = Sharded("momentum", parameters=model())
    saved(run, directory, "old")
    before = files(directory)
    run.train(range(1))
    fails(monkeypatch, 0, run, directory, *place)
    assert files(directory) == before
    holds(directory, "fsdp", "old", model())
    free(run)


def test_a_directory_that_cannot_be_synchronized_after_the_manifest(directory, monkeypatch):
    """The directory may then hold either checkpoint, and the next save succeeds."""
    run = Sharded("momentum", parameters=model())
    saved(run, directory, "old")
    run.train(range(1))
    fails(monkeypatch, 0, run, directory, os, "fsync", 4)
    extra = WORLD.bcast(json.loads((directory / "manifest.json").read_text())["extra"])
    holds(directory, "fsdp", extra, {"old": model(), "new": run.whole()}[extra])
    saved(run, directory, "newer")
    assert len(files(directory)) == 1 + SIZE
    free(run)


def test_a_first_one_that_cannot_be_written(directory, monkeypatch):
    run = Replicas(parameters=model())
    fails(monkeypatch, SIZE - 1, run, directory, np, "savez")
    assert files(directory) == {}
    with pytest.raises(FileNotFoundError):
        loaded(run, directory)
    free(run)


def test_extra_that_json_cannot_hold(directory):
    run = Sharded("momentum", parameters=model())
    saved(run, directory, "old")
    before = files(directory)
    with pytest.raises(TypeError if RANK == 0 else RuntimeError, match="JSON" if RANK == 0 else "rank 0 could not"):
        saved(run, directory, object())
    assert files(directory) == before
    holds(directory, "fsdp", "old", model())
    free(run)


def test_a_file_where_the_directory_should_be(directory):
    run = Replicas()
    if RANK == 0:
        (directory / "file").write_text("")
    for path in (directory / "file", directory / "file" / "below"):
        with pytest.raises(OSError if RANK == 0 else RuntimeError, match="file" if RANK == 0 else "rank 0 could not"):
            saved(run, path)
    free(run)


def test_what_is_in_the_directory(directory):
    """It has one file for each rank and the manifest; files left by killed jobs of any size are removed."""
    run = Sharded(parameters=model())
    place = directory / "not" / "there yet"
    for extra in range(3):
        save(str(place), run.driver, run.optimizer, extra)
        found = files(place)
        assert len(found) == 1 + SIZE
        manifest = json.loads(found["manifest.json"])
        assert (manifest["ranks"], manifest["extra"]) == (SIZE, extra)
        if RANK == 0:
            for rank in range(SIZE + 1):
                (place / f"0123456789abcdef-{rank}.npz").write_bytes(b"unfinished")
        WORLD.Barrier()
    free(run)


def test_a_manifest_that_a_killed_job_left(directory, monkeypatch):
    run, unlink = Sharded(parameters=model()), os.unlink
    with monkeypatch.context() as patch:
        if RANK == 0:
            patch.setattr(os, "unlink", lambda path: "manifest" in str(path) or unlink(path))
        fails(patch, 0, run, directory, os, "replace", 2)
    (left,) = files(directory)
    assert left.startswith("manifest.json")
    saved(run, directory)
    assert left not in files(directory)
    assert len(files(directory)) == 1 + SIZE
    free(run)


def test_a_manifest_that_another_job_is_writing(directory, monkeypatch):
    """It stays, until it was there before a save, and still is after it."""
    run, other, savez = Replicas(), directory / "manifest.jsonabcd_123.tmp", np.savez

    def meanwhile(*arguments, **options):
        savez(*arguments, **options)
        other.write_text("")

    with monkeypatch.context() as patch:
        if RANK == 0:
            patch.setattr(np, "savez", meanwhile)
        saved(run, directory)
    assert other.name in files(directory)
    saved(run, directory)
    assert other.name not in files(directory)
    free(run)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps", "ps worker", *DEDICATED])
def test_every_element_is_written_once(directory, kind):
    run = KINDS[kind]("momentum", parameters={"a": np.zeros(20_000)})
    saved(run, directory)
    nbytes = sum(map(len, files(directory).values()))
    assert 2 * 160_000 < nbytes < 2 * 160_000 + 4096 * (SIZE + 1)
    free(run)


def test_other_files_in_the_directory_stay(directory):
    run = Replicas()
    names = ["digits.npz", "notes.txt", "manifest.json.tmp", "manifest.json-old.tmp", "my manifest.jsonabcdefgh.tmp"]
    if RANK == 0:
        for name in names:
            (directory / name).write_text("precious")
    for _ in range(2):
        saved(run, directory)
    found = files(directory)
    assert [found.get(name) for name in names] == [b"precious"] * len(names)
    free(run)


def refused(run, path, error, pattern):
    """Assert that loading fails on all ranks, and that these can continue to train."""
    with pytest.raises(error, match=pattern):
        loaded(run, path)
    run.train(range(1))
    free(run)


def test_nothing_there(directory):
    for path in (directory, directory / "nowhere"):
        refused(Sharded(), path, FileNotFoundError, "manifest.json")


@pytest.mark.parametrize(
    "text",
    [
        *("", "epoch: 3", "[1, 2]", "{}", '{"format": 2, "generation": "a", "ranks": 1}', '{"format": 1}'),
        '{"format": 1, "generation": "../outside/evil", "ranks": 1, "extra": null}',
        "\udcff\udcfe",
    ],
    ids=["empty", "no JSON", "a list", "no checkpoint", "another format", "cut short", "outside", "no text"],
)
def test_a_manifest_that_is_none(directory, text):
    if RANK == 0:
        (directory / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    WORLD.Barrier()
    refused(Replicas(), directory, ValueError, r"manifest\.json")


def spoil(directory, rank, content):
    """Replace the content of the file of a rank, or remove the file if `content` is None."""
    files(directory)
    if RANK == 0:
        (path,) = directory.glob(f"*-{rank}.npz")
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content(path.read_bytes()))
    WORLD.Barrier()


def foreign(_):
    """Return an archive that is not part of a checkpoint."""
    np.savez(file := io.BytesIO(), a=np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [None, lambda old: b"", lambda old: b"garbage" * 9, lambda old: old[: len(old) // 2], foreign],
    ids=["missing", "empty", "garbage", "cut short", "foreign"],
)
def test_a_part_that_is_none(directory, content):
    run = Sharded(parameters=model())
    saved(run, directory)
    spoil(directory, SIZE - 1, content)
    refused(run, directory, FileNotFoundError if content is None else ValueError, rf"-{SIZE - 1}\.npz")


def flipped(old):
    """Return the file with one bit flipped in the values, which precede the description."""
    at = old.index(b"about.npy") - 64
    return old[:at] + bytes([old[at] ^ 16]) + old[at + 1 :]


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps worker", *DEDICATED])
@pytest.mark.parametrize("rank", sorted({0, SIZE - 1}))
def test_a_flipped_bit_changes_nothing_on_any_rank(directory, kind, rank):
    """Ranks that need the damaged data name the file; the others report that a rank could not read it."""
    run, fresh = Sharded("momentum", parameters=model()), KINDS[kind]("momentum")
    run.train(range(1))
    fresh.train(range(1))
    saved(run, directory)
    before, counts = fresh.whole(), dict(getattr(fresh.optimizer, "steps", {}))
    spoil(directory, rank, flipped)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        loaded(fresh, directory)
    errors = WORLD.allgather((caught.type is ValueError, str(caught.value)))
    assert any(named for named, _ in errors)
    assert all(f"-{rank}.npz is not a part" in text if named else "could not read" in text for named, text in errors)
    assert_equal(fresh.whole(), before)
    assert counts == dict(getattr(fresh.optimizer, "steps", {}))
    free(run, fresh)


@several
def test_ranks_that_find_different_checkpoints(directory):
    run, other = Replicas(parameters=model()), Replicas(parameters=model(seed=3))
    for name in ("one", "two"):
        saved(run, directory / name)
    before = other.whole()
    with pytest.raises(ValueError, match="different checkpoints"):
        loaded(other, directory / ("one" if RANK else "two"))
    assert_equal(other.whole(), before)
    free(run, other)


@several
@pytest.mark.parametrize("kind, rank", [("ddp", SIZE - 1), ("fsdp", 0), *((kind, 0) for kind in DEDICATED)])
def test_a_directory_that_one_rank_does_not_see(directory, kind, rank):
    run = KINDS[kind](parameters=model())
    saved(run, directory)
    if rank == RANK:
        refused(run, directory / "elsewhere", FileNotFoundError, "manifest")
    else:
        refused(run, directory, RuntimeError, f"rank {rank}")


OTHERS = {
    "shape": ({**SHAPES, "hidden.weight": (5, 7)}, "hidden.weight"),
    "last": ({**SHAPES, "out.bias": (4,)}, "out.bias"),
    "missing": ({**SHAPES, "more.weight": (4, 4)}, "more.weight"),
}


@pytest.mark.parametrize(
    "kind, other",
    [("ddp", "shape"), ("ps worker", "last"), *((kind, o) for kind in ["fsdp", *DEDICATED] for o in OTHERS)],
)
def test_another_model(directory, kind, other):
    """At least one rank names the parameter that differs, and the others report the failure of that rank."""
    run = Replicas("sgd", parameters=model())
    saved(run, directory)
    shapes, name = OTHERS[other]
    odd = KINDS[kind]("sgd", parameters={name: np.zeros(shape) for name, shape in shapes.items()})
    with pytest.raises((ValueError, RuntimeError)) as caught:
        loaded(odd, directory)
    errors = WORLD.allgather((caught.type is ValueError, str(caught.value)))
    assert any(right and f"'{name}" in text for right, text in errors)
    assert all(right or "checkpoint: rank" in text for right, text in errors)
    free(run, odd)


@pytest.mark.parametrize("kind", ["fsdp one unit", "ps"])
@pytest.mark.parametrize("optimizer", ["adam", "momentum", "sgd"])
def test_parameters_that_were_updated_more_often_than_others(directory, kind, optimizer):
    """One count would be wrong for some of them; plain SGD needs no count."""
    run = Replicas(optimizer, parameters=model(), find_unused=True)
    for _ in range(3):
        run.driver.ready("hidden.bias", np.ones(5))
        run.optimizer.step(run.driver.synchronize())
    run.train(range(1))
    saved(run, directory)
    other = KINDS[kind](optimizer)
    if optimizer == "sgd":
        loaded(other, directory)
        assert_equal(other.whole(), run.whole())
    else:
        before = other.whole()
        with pytest.raises((ValueError, RuntimeError)) as caught:
            loaded(other, directory)
        texts = [str(text) for text in WORLD.allgather(caught.value)]
        assert any("('hidden.weight': 1, 'hidden.bias': 4), but" in text for text in texts)
        assert_equal(other.whole(), before)
    free(run, other)


def test_counts_of_updates_that_differ_between_units(directory):
    run = Replicas(parameters=model(), find_unused=True)
    run.driver.ready("scale", np.ones(()))
    run.optimizer.step(run.driver.synchronize())
    run.train(range(1))
    saved(run, directory)
    other, back = Sharded(), Replicas()
    loaded(other, directory)
    saved(other, directory)
    loaded(back, directory)
    assert back.optimizer.steps == run.optimizer.steps
    free(run, other, back)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ps", *DEDICATED])
def test_another_optimizer(directory, kind):
    run, odd = KINDS["ddp"]("momentum", parameters=model()), KINDS[kind]("adam")
    saved(run, directory)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        loaded(odd, directory)
    assert any("mean" in text for text in WORLD.allgather(str(caught.value)))
    free(run, odd)


def test_buffers_that_are_not_there(directory):
    run, odd = Sharded(), Replicas(buffers=["seen"])
    saved(run, directory)
    with pytest.raises((ValueError, RuntimeError), match="seen"):
        loaded(odd, directory)
    free(run, odd)


def test_what_a_hook_keeps_does_not_fit_other_buckets(directory):
    run, fewer = Replicas("sgd", hook=TopK(0.2), **BUCKETS), Replicas("sgd", hook=TopK(0.2))
    for source, target in ((run, fewer), (fewer, run)):
        source.train(range(1))
        saved(source, directory)
        target.train(range(1, 2))
        before, kept = target.whole(), {name: array.copy() for name, array in target.driver.private.items()}
        with pytest.raises(ValueError, match="bucket"):
            loaded(target, directory)
        assert_equal(target.whole(), before)
        assert_equal(target.driver.private, kept)
    free(run, fewer)


def test_what_json_cannot_hold(tmp_path):
    path = WORLD.bcast(tmp_path)
    driver = DistributedDataParallel({"a": np.zeros(3)})
    error = TypeError if RANK == 0 else RuntimeError
    with pytest.raises(error, match="extra=.*not JSON serializable" if RANK == 0 else "manifest"):
        save(path, driver, extra={"x": np.ones(2)})
    driver.free()

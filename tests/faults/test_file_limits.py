"""Limits of a file's size and of open files, as `ulimit -f` and `ulimit -n` set them: they are named, and no damage."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from tests.commands import new_store, tierfs
from tests.stores import TestStore, open_test_store
from tierfs.base.system import os_errors, osio
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import StorageFull, TierfsError, Unavailable
from tierfs.engine.chunkstore.directory import tree
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.lmdb_errors import meaning
from tierfs.engine.segments.writer_locks import WriterLocks
from tierfs.reading.local import LocalReader

KIB = 1024


def limited(
    store: Path, *words: object, kind: int, limit: int, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a user does who has set a limit."""
    return subprocess.run(
        [sys.executable, "-m", "tierfs", *map(str, words)],
        env={**os.environ, "TIERFS_STORE": str(store)},
        capture_output=True,
        input=stdin,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
        check=False,
    )


@pytest.mark.parametrize("limit", [100 * KIB, 112 * KIB, 113 * KIB, 120 * KIB, 1000 * KIB])
def test_a_limit_of_a_files_size_is_named_and_is_no_damage(tmp_path: Path, limit: int) -> None:
    store, data = new_store(tmp_path), os.urandom(2000 * KIB)
    tierfs("append", "before", store=store, stdin=b"here")
    done = limited(store, "append", "s", kind=resource.RLIMIT_FSIZE, limit=limit, stdin=data)
    said = done.stderr.decode()
    assert (done.returncode, "ulimit -f" in said) == (StorageFull.exit_code, True), said
    assert all(word not in said.lower() for word in ("damage", "dataloss", "check", "internal error", "traceback"))
    assert tierfs("cat", "before", store=store).out == "here"
    tierfs("check", store=store)


def test_many_files_are_read_with_few_descriptors(tmp_path: Path) -> None:
    store, files = new_store(tmp_path), tmp_path / "files"
    files.mkdir()
    for number in range(200):
        (files / str(number)).write_text(f"{number}\n")
    few = {"kind": resource.RLIMIT_NOFILE, "limit": 100}
    assert limited(store, "ingest", files, "--into", "x", **few).returncode == 0
    read = limited(store, "cat", "x/*", **few)
    assert sorted(map(int, read.stdout.split())) == list(range(200)), read.stderr
    assert limited(store, "offload", "/", **few).returncode == 0


@contextmanager
def no_descriptor(*, left: int = 0) -> Iterator[None]:
    """Let this process open so many files more, and then none."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest)]
    highest = max(held)
    for fd in held[len(held) - left :]:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in held[: len(held) - left]:
            os.close(fd)


def test_a_reader_gives_up_other_files_for_the_one_it_needs(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        names = [name_of(store, f"s{number}") for number in range(5)]
        reader = LocalReader(store.files, 100, 1, NullMetrics())
        try:
            reader._opened(names[0])
            with no_descriptor(left=1):
                for name in names[1:]:
                    reader._opened(name)
                assert 0 < len(reader._open) < len(names)
        finally:
            reader.close()


def name_of(store: TestStore, segment: str) -> str:
    store.append(segment, b"abc", seal=True)
    return store.layout(segment).local[0].object.name


def test_locks_for_which_there_is_no_descriptor_raise_errors_of_ours(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        publisher = Publisher(store.metadata, store.cold)
        with no_descriptor():
            with pytest.raises(Unavailable, match="publishing: too many open files") as caught, publisher._turn():
                pass
            with pytest.raises(Unavailable, match="writers: too many open files"):
                WriterLocks(tmp_path / "writers")
        assert "ulimit -n" in (caught.value.remedy or "")


@pytest.mark.parametrize(("number", "kind"), [(errno.EFBIG, StorageFull), (errno.EMFILE, Unavailable)])
@pytest.mark.parametrize("table", [os_errors.LOCAL_DISK, tree._MEANINGS], ids=["local", "cold"])
def test_what_a_limit_means(number: int, kind: type[TierfsError], table: os_errors.Meanings) -> None:
    error = os_errors.ours(OSError(number, "x"), "it", table)
    assert (type(error), "ulimit" in (error.remedy or "")) == (kind, True)


@pytest.mark.parametrize("number", sorted(os_errors.NO_ROOM))
def test_a_commit_without_room_is_no_damage(tmp_path: Path, number: int) -> None:
    error = meaning(tmp_path, lmdb.Error(f"mdb_txn_commit: {os.strerror(number)}"))
    assert isinstance(error, StorageFull)


@pytest.mark.parametrize(
    ("limit", "wanted", "expected"), [(256, 256, 64), (1024, 256, 256), (1023, 256, 255), (10, 256, 8), (256, 4, 4)]
)
def test_a_cache_of_files_fits_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, wanted: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert osio.open_files_within_limit(wanted) == expected

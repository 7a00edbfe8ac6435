"""The Python face does what the command line does, and answers in records."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import tierfs
from tests.children import code_of_child
from tests.commands import tierfs as command
from tierfs.base.words.errors import Closed, InvalidRequest, IsDirectory, NotFound, OffsetMismatch, Sealed
from tierfs.base.words.types import ByteRange, ReadPriority
from tierfs.engine.segments.shared_writers import SharedWriters

MORE_THAN_A_BUFFER = (1 << 20) + 7


def test_what_is_appended_is_read(store: tierfs.Store) -> None:
    assert store.append("logs/web", b"one\ntwo\n") == ByteRange(0, 8)
    with store.open_writer("logs/web", expected_offset=8) as writer:
        assert writer.append(b"three\n") == ByteRange(8, 14)
        assert (writer.name, writer.length) == ("logs/web", 14)
        with pytest.raises(OffsetMismatch) as refused:
            writer.append(b"x", expected_offset=3)
        assert refused.value.actual_length == 14
    with store.open("logs/web") as reader:
        assert list(reader) == [b"one\n", b"two\n", b"three\n"]
        assert (reader.read_at(4, 3), reader.read_at(14), reader.size) == (b"two", b"", 14)
        assert (reader.seek(-6, os.SEEK_END), reader.read()) == (8, b"three\n")


@pytest.mark.parametrize("size", [0, 1, MORE_THAN_A_BUFFER - 8, MORE_THAN_A_BUFFER])
def test_any_size_in_either_tier(store: tierfs.Store, size: int) -> None:
    data = os.urandom(size)
    store.append("s", data, seal=True)
    segment = store.segment("s")
    assert segment.read() == data
    assert store.offload("s").bytes == size
    store.evict("s", force=True)
    info = segment.info()
    assert (info.local_bytes, info.cold_bytes, info.length, info.sealed) == (0, size, size, True)
    assert segment.read(size // 2) == data[size // 2 :]
    assert segment.read(0, size // 2, read_priority="offloaded-only") == data[: size // 2]


def test_a_position_is_of_the_file_and_an_offset_of_the_segment(store: tierfs.Store) -> None:
    store.append("s", b"0123456789")
    assert store.segment("s").truncate(4).bytes == 4
    with store.open("s") as reader:
        assert (reader.start_offset, reader.length, reader.read(2), reader.read_at(4, 2)) == (4, 10, b"45", b"45")
        for offset, size in ((3, 1), (11, 1), (4, -1)):
            with pytest.raises(InvalidRequest):
                reader.read_at(offset, size)
    with pytest.raises(InvalidRequest):
        store.segment("s").read(0)


def test_names_of_a_directory_and_facts_of_a_segment(store: tierfs.Store) -> None:
    store.make_directory("logs/empty")
    store.append("logs/a", b"1")
    store.append("b", b"22", seal=True)
    assert [(name.path, name.name, name.is_directory, name.length, name.sealed) for name in store.ls()] == [
        ("b", "b", False, 2, True),
        ("logs", "logs", True, 0, False),
    ]
    assert [name.path for name in store.ls("/logs/")] == ["logs/a", "logs/empty"]
    assert [name.path for name in store.ls("logs/a")] == ["logs/a"]
    assert [segment.name for segment in store.segments()] == ["b", "logs/a"]
    info = store.info("b")
    assert (info.name, info.read_priority, info.is_ledger) == ("b", ReadPriority.LOCAL_FIRST, False)
    assert info.modified is not None
    assert [store.segment(name).exists() for name in ("b", "logs", "none")] == [True, False, False]


def test_concat_seal_unseal_and_delete_do_what_the_commands_do(store: tierfs.Store) -> None:
    store.append("a", b"one")
    store.append("b", b"two", seal=True)
    assert store.segment("a").concat("b").range == ByteRange(3, 6)
    assert store.segment("a").read() == b"onetwo"
    store.segment("a").seal()
    with pytest.raises(Sealed):
        store.append("a", b"x")
    store.segment("a").unseal()
    assert store.append("a", b"!") == ByteRange(6, 7)
    assert store.delete("a").segments == 1
    assert not store.segment("a").exists()


def test_rename_and_clone_do_what_the_commands_do(store: tierfs.Store) -> None:
    store.append("a", b"one two")
    with store.open_writer("a") as writer:
        assert store.rename("a", "logs/b").target == "logs/b"
        assert writer.append(b"!") == ByteRange(7, 8)
    store.rename("logs", "old")
    done = store.segment("old/b").clone("old/c", end=3)
    assert (done.target, done.start, done.end) == ("old/c", 0, 3)
    assert (store.segment("old/c").read(), store.segment("old/b").read()) == (b"one", b"one two!")
    assert store.append("old/c", b"?") == ByteRange(3, 4)
    with pytest.raises(InvalidRequest, match="it has bytes 0 to 8"):
        store.segment("old/b").clone("d", end=9)


def test_objects_are_consolidated(store: tierfs.Store) -> None:
    for _ in range(2):
        store.append("logs/s", b"line\n")
        store.offload("logs/s")
    assert (store.consolidate().objects_before, store.consolidate(compress=True).objects_before) == (2, 0)


def test_policies_are_set_unset_and_refused(store: tierfs.Store) -> None:
    store.set_policy("new/directory", chunk_bytes="1MiB", offload_after="1h")
    assert store.policy("new/directory")["chunk_bytes"] == 1 << 20
    store.set_policy("new/directory", chunk_bytes=None)
    assert store.policy("new/directory")["chunk_bytes"] == store.policy()["chunk_bytes"]
    store.set_policy("new", compression="zstd", compression_level=1)
    assert [store.policy("new/directory")[key] for key in ("compression", "compression_level")] == ["zstd", 1]
    for wanted in ({"chunk_bites": "1"}, {"chunk_bytes": "much"}, {"compression": "lz4"}, {"compression_level": 1.5}):
        with pytest.raises(InvalidRequest):
            store.set_policy("new", **wanted)


def test_refusals_say_what_and_where(store: tierfs.Store, tmp_path: Path) -> None:
    store.make_directory("logs")
    for call, kind in (
        (lambda: store.info("none"), NotFound),
        (lambda: store.open("logs"), IsDirectory),
        (lambda: store.append("logs", b"x"), IsDirectory),
        (lambda: store.open("none", read_priority="cold"), NotFound),
        (lambda: store.delete("logs"), InvalidRequest),
        (lambda: tierfs.open_store(tmp_path / "none"), NotFound),
    ):
        with pytest.raises(kind):
            call()
    store.append("s", b"x")
    with pytest.raises(InvalidRequest, match="local-first"):
        store.open("s", read_priority="cold")
    store.close()
    with pytest.raises(Closed):
        store.ls()


def test_a_writer_of_another_process_is_named(path: Path, store: tierfs.Store) -> None:
    with store.open_writer("s") as writer:
        writer.append(b"mine")
        refused = command("append", "s", store=path, stdin=b"x", check=False)
        assert (refused.code, str(os.getpid()) in refused.err) == (5, True)
    assert command("append", "s", store=path, stdin=b"x").out == "s 4 5\n"


def test_threads_share_one_writer(store: tierfs.Store) -> None:
    with store.open_writer("s") as writer:
        threads = [Thread(target=lambda: [writer.append(b"line\n") for _ in range(20)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert store.segment("s").read() == b"line\n" * 160


def test_appends_of_threads_are_all_made(path: Path, store: tierfs.Store) -> None:
    """Each opens a writer and closes it, and so may another store of the same path."""
    stores = [store, tierfs.open_store(path)]

    def append(number: int) -> bytes:
        at = stores[number % 2].append("s", b"%04d" % number)
        return store.segment("s").read(at.start, at.length_bytes)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(append, range(160))) == [b"%04d" % number for number in range(160)]
    assert store.info("s").length == 4 * 160


def test_a_conditional_append_is_refused_where_another_thread_was_faster(
    store: tierfs.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open_writer("s") as writer:
        opened = SharedWriters.open

        def open_late(writers: SharedWriters, name: str, **options: Any) -> Any:
            found = opened(writers, name, **options)
            writer.append(b"faster")
            return found

        monkeypatch.setattr(SharedWriters, "open", open_late)
        with pytest.raises(OffsetMismatch) as refused:
            store.append("s", b"late", expected_offset=0)
    assert refused.value.actual_length == 6
    assert store.segment("s").read() == b"faster"


def test_a_writer_ends_for_its_user_alone(path: Path, store: tierfs.Store) -> None:
    first, second = store.open_writer("s"), store.open_writer("s")
    first.append(b"a")
    first.close()
    first.close()
    with pytest.raises(Closed):
        first.append(b"lost")
    assert second.append(b"b", expected_offset=1).end == 2
    second.close()
    assert command("append", "s", store=path, stdin=b"c").out == "s 2 3\n"


def test_a_child_of_fork_has_a_store_of_its_own(store: tierfs.Store) -> None:
    store.append("s", b"before")
    assert store.segment("s").read() == b"before"

    def read_and_append() -> int:
        return int(store.segment("s").read() != b"before" or store.append("s", b" child").end != 12)

    assert code_of_child(read_and_append) == 0
    assert store.segment("s").read() == b"before child"


def test_nothing_else_is_in_the_package() -> None:
    assert {"open_store", "Store", "Segment"} <= set(dir(tierfs))
    with pytest.raises(AttributeError, match="opne_store"):
        getattr(tierfs, "opne_store")  # noqa: B009

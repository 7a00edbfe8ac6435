"""URLs, listings, and the information about segments and directories."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

from tests import verbs
from tests.faces.fsspec.conftest import make_cold
from tests.mount.conftest import append
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.faces.fsspec import TierfsFileSystem


@pytest.fixture(autouse=True)
def tree(store: app.Store) -> None:
    """logs/web, logs/app/1 and top; an empty directory; and no filesystem of another test."""
    TierfsFileSystem.clear_instance_cache()
    append(store, "logs/web", b"123")
    append(store, "logs/app/1", b"", seal=True)
    append(store, "top", b"1")
    store.engine.make_directory("empty")


def test_stores_by_url_option_and_environment(
    store: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest leading store of a path counts, and the environment each time; a link to a store is that store."""

    def read(url: str, **options: object) -> bytes:
        with fsspec.open(f"tierfs://{url}", **options) as file:
            return bytes(file.read())

    monkeypatch.delenv("TIERFS_STORE", raising=False)
    assert fsspec.get_filesystem_class("tierfs") is TierfsFileSystem
    given = {"store": store.path}
    assert read("logs/web", **given) == read("/logs/web", **given) == read(f"{store.path}/logs/web") == b"123"
    inner = store.path / "inner"
    init_store(inner)
    with app.open_store(inner) as opened:
        append(opened, "logs/web", b"inner")
    assert read(f"{inner}/logs/web") == b"inner"
    for path, expected in ((store.path, ["empty", "logs", "top"]), (inner, ["logs"])):
        monkeypatch.setenv("TIERFS_STORE", str(path))
        assert fsspec.filesystem("tierfs").ls("", detail=False) == expected
    assert read("logs/web") == b"inner"
    fs = fsspec.filesystem("tierfs", store=store.path)
    of_inner, outer = fsspec.filesystem("tierfs", store=inner), f"{store.path}/logs/web"
    for ask in (lambda: read(outer, store=inner), lambda: of_inner.open(outer)):
        with pytest.raises(OSError, match=f"is in the store {store.path}"):
            ask()
    (tmp_path / "link").symlink_to(store.path)
    linked = fsspec.filesystem("tierfs", store=tmp_path / "link")
    assert linked.cat_file(f"{store.path}/logs/web") == fs.cat_file(f"{tmp_path}/link/logs/web") == b"123"
    assert linked._connected() is fs._connected()
    monkeypatch.delenv("TIERFS_STORE")
    for at, message in (("/nowhere", "is not a tierfs store; create one with"), (None, "no store is given; set")):
        fs = TierfsFileSystem(store=at)
        for ask_for in (fs.ls, fs.info, fs.exists, fs.open):
            with pytest.raises(OSError, match=message):
                ask_for("logs")


def test_listings_and_walks_keep_the_form_of_the_path(store: app.Store, fs: TierfsFileSystem) -> None:
    assert fs.ls("", detail=False) == ["empty", "logs", "top"]
    assert fs.ls("tierfs://logs", detail=False) == ["logs/app", "logs/web"]
    assert fs.ls(f"{store.path}/logs/", detail=False) == [f"{store.path}/logs/app", f"{store.path}/logs/web"]
    assert fs.ls("logs/web", detail=False) == ["logs/web"]
    assert fs.unstrip_protocol("logs/web") == f"tierfs://{store.path}/logs/web"
    assert fs.find("") == ["logs/app/1", "logs/web", "top"]
    assert fs.glob("logs/**") == ["logs", "logs/app", "logs/app/1", "logs/web"]
    assert fs.glob(f"{store.path}/l*/w?b") == [f"{store.path}/logs/web"]
    assert fs.du("logs") == 3
    assert [place for place, _, _ in fs.walk("logs")] == ["logs", "logs/app"]


def test_what_is_told_of_segments_and_directories(store: app.Store, fs: TierfsFileSystem) -> None:
    found = fs.info("logs/web")
    expected = {"name": "logs/web", "size": 3, "type": "file", "kind": "bytes", "sealed": False}
    assert {key: found[key] for key in expected} == expected
    assert fs.info("logs/app/1")["sealed"]
    assert fs.info("logs")["type"] == fs.info("")["type"] == "directory"
    assert found in fs.ls("logs")
    assert abs((datetime.now(UTC) - fs.modified("logs/web")).total_seconds()) < 60
    assert fs.created("logs/web") <= fs.modified("logs/web")
    assert (fs.isfile("logs/web"), fs.isdir("logs")) == (True, True)
    assert (fs.exists("logs/web/x"), fs.exists("x")) == (False, False)
    # A cache that goes by a key may keep what it has when bytes move, and not when they are more.
    before = (fs.ukey("logs/web"), fs.checksum("logs/web"))
    make_cold(store, "logs/web")
    assert (fs.ukey("logs/web"), fs.checksum("logs/web")) == before
    append(store, "logs/web", b"4")
    assert fs.ukey("logs/web") != before[0]
    assert fs.checksum("logs/web") != before[1]


def in_a_transaction(fs: TierfsFileSystem) -> None:
    with fs.transaction:
        fs.open("new", "wb")


APPEND_ONLY = "append-only; append to it with mode ab, or remove it first"
REFUSALS: list[tuple[Callable[[TierfsFileSystem], object], type[Exception], str | None]] = [
    (lambda fs: fs.open("nope"), FileNotFoundError, "segment nope does not exist"),
    (lambda fs: fs.ls("nope"), FileNotFoundError, "nope does not exist"),
    (lambda fs: fs.rm("nope"), FileNotFoundError, "nope"),
    (lambda fs: fs.cat_file("nope"), FileNotFoundError, "nope does not exist"),
    (lambda fs: fs.mkdir("x/y", create_parents=False), FileNotFoundError, "x"),
    (lambda fs: fs.open("logs"), IsADirectoryError, "logs is a directory"),
    (lambda fs: fs.open("", "ab"), IsADirectoryError, None),
    (lambda fs: fs.rm("logs"), IsADirectoryError, None),
    (lambda fs: fs.rmdir("logs"), OSError, "is not empty; remove it with"),
    (lambda fs: fs.open("top/x"), NotADirectoryError, "top is a segment"),
    (lambda fs: fs.open("new/../s", "wb"), OSError, "cannot be part"),
    (lambda fs: fs.open("top", "wb"), FileExistsError, APPEND_ONLY),
    (lambda fs: fs.open("logs/app/1", "xb"), FileExistsError, None),
    (lambda fs: fs.pipe_file("top", b"new"), FileExistsError, APPEND_ONLY),
    (lambda fs: fs.touch("top"), FileExistsError, None),
    (lambda fs: fs.mkdir("empty"), FileExistsError, None),
    (lambda fs: fs.open("logs/app/1", "ab"), PermissionError, "logs/app/1: it is sealed; tierfs unseal"),
    (in_a_transaction, OSError, "appends cannot be undone"),
    (lambda fs: fs.open("top", "r+b"), ValueError, "unsupported mode 'r\\+b': use rb, ab, wb, xb"),
    (lambda fs: TierfsFileSystem(seel=True), TypeError, "unknown storage option seel; known: store, seal"),
    (lambda fs: TierfsFileSystem(read_priority="x"), ValueError, "expected one of local-only"),
]


def test_a_refusal_names_its_reason_and_changes_nothing(fs: TierfsFileSystem) -> None:
    before = fs.find("", withdirs=True), fs.cat(["logs/web", "logs/app/1", "top"])
    for work, error, message in REFUSALS:
        with pytest.raises(error, match=message):
            work(fs)
        assert (fs.find("", withdirs=True), fs.cat(["logs/web", "logs/app/1", "top"])) == before


def test_a_missing_segment_leaves_the_other_ranges(store: app.Store, fs: TierfsFileSystem) -> None:
    found = fs.cat_ranges(["top", "nope", "logs/web"], [0, 0, 1], [1, 1, 3])
    assert (found[0], type(found[1]), found[2]) == (b"1", FileNotFoundError, b"23")
    make_cold(store, "logs/web")
    local = TierfsFileSystem(store=store.path, read_priority="local-only", skip_instance_cache=True)
    with pytest.raises(OSError, match=r"not in the local tier.*--read-priority") as caught:
        local.cat_file("logs/web")
    assert caught.value.errno == 5


def test_the_url_of_a_bucket(store: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verbs.offload(store)
    bucket = TierfsFileSystem(store=f"file://{tmp_path}/cold", skip_instance_cache=True)
    assert bucket.cat_file("logs/web") == b"123"
    append(store, "logs/web", b"456")
    verbs.offload(store)
    assert bucket.cat_file("logs/web") == b"123"
    bucket.invalidate_cache()
    assert bucket.cat_file("logs/web") == b"123456"
    with pytest.raises(PermissionError, match="is a replica"):
        bucket.pipe_file("new", b"")

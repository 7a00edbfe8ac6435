"""Paths, directories, globs and filters select segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.conftest import append
from tests.scan.scanning import store_of
from tierfs.app import store as app
from tierfs.errors import InvalidRequest, NotDirectory, NotFound
from tierfs.scan.selection import Selection, select

NAMES = ("logs/2031-01-30", "logs/2031-01-31", "logs/2031-02-01", "logs/old/2030", "logs/old/_x", "top")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    with store_of(tmp_path_factory.mktemp("selection") / "store") as opened:
        for name in NAMES:
            append(opened, name, b"x")
        yield opened


def selected(store: app.Store, *paths: str, **options: object) -> list[str]:
    with store.metadata.read() as txn:
        return [name for name, _ in select(txn, Selection(paths, **options))]  # type: ignore[arg-type]


def test_segments_and_directories(store: app.Store) -> None:
    assert selected(store, "top") == ["top"]
    assert selected(store, "/logs/") == list(NAMES[:3])
    assert selected(store, "") == ["top"]
    assert selected(store, "", recursive=True) == list(NAMES)
    assert selected(store, "logs", "logs/2031-01-30") == list(NAMES[:3]), "each once"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("logs/2031-*", NAMES[:3]),
        ("logs/2031-0?-3[01]", NAMES[:2]),
        ("logs/2031-{01-3[1-9],02-01}", NAMES[1:3]),
        ("*/old", NAMES[3:5]),
        ("logs/*/2030", NAMES[3:4]),
        ("logs/2031-01-3[^0]", NAMES[1:2]),
        ("{top,logs/old}", ("top", *NAMES[3:5])),
    ],
)
def test_globs(store: app.Store, glob: str, found: tuple[str, ...]) -> None:
    assert selected(store, glob) == list(found)


def test_a_glob_of_directories_means_the_segments_in_them(store: app.Store) -> None:
    assert selected(store, "log*") == list(NAMES[:3])
    assert selected(store, "log*", recursive=True) == list(NAMES[:5])


def test_filters(store: app.Store) -> None:
    assert selected(store, "logs", name_glob="*-01") == ["logs/2031-02-01"]
    now_ms = store.clock.now_ms() + 1000
    assert selected(store, "logs", modified_before_ms=now_ms) == list(NAMES[:3])
    assert selected(store, "logs", modified_after_ms=now_ms) == []


def test_what_leads_nowhere_is_an_error(store: app.Store) -> None:
    with pytest.raises(NotFound, match="logs/web does not exist in the store"):
        selected(store, "logs/web")
    with pytest.raises(NotFound, match=r"nothing in the store matches logs/2032-\*"):
        selected(store, "logs/2032-*")
    with pytest.raises(NotDirectory, match="top is a segment"):
        selected(store, "top/below")
    with pytest.raises(InvalidRequest, match="a brace is not closed"):
        selected(store, "logs/{a")
    with pytest.raises(InvalidRequest, match="stands for more than 1000 patterns"):
        selected(store, "{a,b,c,d}" * 6)


def test_an_empty_directory_is_empty(tmp_path: Path) -> None:
    with store_of(tmp_path / "store") as empty:
        assert selected(empty, "") == []

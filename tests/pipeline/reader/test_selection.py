"""Paths, directories, globs and filters select segments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tierfs.app import store as app
from tierfs.base.words.errors import InvalidRequest, NotDirectory, NotFound
from tierfs.base.words.types import DirectoryId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.partition_conditions import parse_conditions
from tierfs.pipeline.reader.selection import Selection, explain_nothing, select

PARTS = (
    "part/day=2031-01-30/hour=7/a",
    "part/day=2031-01-30/hour=10/b",
    "part/day=2031-01-31/hour=7/sub/c",
    "part/day=__HIVE_DEFAULT_PARTITION__/hour=8/d",
    "part/other/e",
    "part/top",
)
ODD = ("odd/[a]*", "odd/[b]x", "odd/a,b", "odd/a\\b", "odd/{x}")
HIDDEN = ("hidden/.x", "hidden/_d/x", "hidden/_e=1/x", "hidden/_x", "hidden/x", "hidden/x._COPYING_")
NAMES = ("logs/2031-01-30", "logs/2031-01-31", "logs/2031-02-01", "logs/old/2030", "logs/old/_x", "top")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[app.Store]:
    with store_of(tmp_path_factory.mktemp("selection") / "store") as opened:
        for name in (*NAMES, *PARTS, *ODD, *HIDDEN):
            append(opened, name, b"x")
        yield opened


def selected(store: app.Store, *paths: str, **options: object) -> list[str]:
    with store.metadata.read() as txn:
        return [name for name, _ in select(txn, Selection(paths, **options))]  # type: ignore[arg-type]


def test_segments_and_directories(store: app.Store) -> None:
    assert selected(store, "top") == ["top"]
    assert selected(store, "/logs/") == list(NAMES[:3])
    assert selected(store, "") == ["top"]
    assert selected(store, "log*", recursive=True) == list(NAMES[:5])
    assert selected(store, "", recursive=True) == sorted((*NAMES, *PARTS, *ODD, *HIDDEN))
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
        ("log*", NAMES[:3]),  # a glob of directories means the segments in them
        ("odd/\\[a\\]\\*", ODD[:1]),  # a backslash takes the next character as it is
        ("odd/\\[*", ODD[:2]),
        ("odd/[\\[]b\\]*", ODD[1:2]),
        ("odd/{a\\,b,\\[b]x}", ODD[1:3]),
        ("odd/a\\\\b", ODD[3:4]),
        ("odd/\\{x\\}", ODD[4:]),
        ("\\o\\dd/a,b", ODD[2:3]),
    ],
)
def test_globs_select_the_names_they_match(store: app.Store, glob: str, found: tuple[str, ...]) -> None:
    assert sorted(selected(store, glob)) == sorted(found)
    assert all(Selection((glob,)).selects(name) == (name in found) for name in ODD)


def test_filters_select_by_name_and_time(store: app.Store) -> None:
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
    with pytest.raises(InvalidRequest, match="missing closing brace"):
        selected(store, "logs/{a")
    with pytest.raises(InvalidRequest, match="expands to more than 1000 patterns"):
        selected(store, "{a,b,c,d}" * 6)


def escaped(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"\\{character}" if character in "*?[]{}\\,^!-" else character for character in name)


def test_an_escaped_name_means_itself(store: app.Store) -> None:
    for name in ODD:
        assert selected(store, escaped(name)) == [name]
        assert selected(store, "odd", name_glob=escaped(name[4:])) == [name]
    with pytest.raises(InvalidRequest, match="ends with a single backslash"):
        selected(store, "odd/a\\")


def test_directories_of_partitions_are_read_with_their_table(store: app.Store) -> None:
    assert selected(store, "part") == [*PARTS[1::-1], *PARTS[2:4], PARTS[5]]
    assert selected(store, "part/day=2031-01-30") == list(PARTS[1::-1])
    for name in PARTS:
        assert Selection(("part",)).selects(name) == (name != "part/other/e"), name


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ("day >= '2031-01-31'", PARTS[2:3]),
        ("day < '2031-01-31' AND hour > 8", PARTS[1:2]),
        ("hour > '8'", PARTS[1:2]),
        ("HOUR = 07", (PARTS[0], PARTS[2])),
        ("hour in (8, '10')", (PARTS[1], PARTS[3])),
        ("hour not in (7, 10)", PARTS[3:4]),
        ("`hour` BETWEEN 8 AND 10 and day is not null", PARTS[1:2]),
        ("day IS NULL and hour = 8", PARTS[3:4]),
        ("day is null", (PARTS[3], PARTS[5])),
        ("day <> '2031-01-30'", PARTS[2:3]),
        ("day == 'it''s'", ()),
    ],
)
def test_conditions_choose_directories(store: app.Store, conditions: str, found: tuple[str, ...]) -> None:
    chosen = parse_conditions(conditions)
    assert sorted(selected(store, "part", conditions=chosen)) == sorted(found)
    assert sorted(selected(store, "part/*", recursive=True, conditions=chosen)) == sorted(
        found if "is null" not in conditions.lower() or "hour" in conditions.lower() else (*found, "part/other/e")
    )
    assert sorted(name for name in PARTS if Selection(("part",), conditions=chosen).selects(name)) == sorted(found)


@pytest.mark.parametrize(
    "conditions", ["", " ", "day", "day =", "day = x", "day = 1 OR day = 2", "day ~ 1", "day in ()"]
)
def test_conditions_that_are_none(conditions: str) -> None:
    with pytest.raises(InvalidRequest, match="for option partitionFilter"):
        parse_conditions(conditions)


def test_directories_that_conditions_exclude_are_not_listed(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    entries = directories.entries

    def listing(txn: ReadTransaction, parent_id: DirectoryId) -> Iterator[Entry]:
        listed.append(parent_id)
        return entries(txn, parent_id)

    monkeypatch.setattr(directories, "entries", listing)
    selected(store, "part")
    everything = len(listed)
    listed.clear()
    selected(store, "part", conditions=parse_conditions("day = '2031-01-31'"))
    assert (everything, len(listed)) == (9, 4), "part, the day, its hour, and the directory below it"


def test_hidden_names_are_read_unless_they_are_to_be_skipped(store: app.Store) -> None:
    assert selected(store, "hidden", recursive=True) == list(HIDDEN)
    assert selected(store, "hidden", recursive=True, skips_hidden=True) == ["hidden/_e=1/x", "hidden/x"]
    assert selected(store, "hidden/_x", skips_hidden=True) == []
    kept = Selection(("hidden",), recursive=True, skips_hidden=True)
    assert [name for name in HIDDEN if kept.selects(name)] == ["hidden/_e=1/x", "hidden/x"]


@pytest.mark.parametrize(
    ("path", "conditions", "message"),
    [
        ("", "", "/ has no segments"),
        ("part", "dya = '2031-01-30'", "partitionFilter uses dya, but no directory has a name dya=…"),
        ("log*", "dya = 1", ""),
        ("part", "day = '2032-01-30'", ""),
    ],
)
def test_nothing_is_explained(tmp_path: Path, store: app.Store, path: str, conditions: str, message: str) -> None:
    selection = Selection((path,), conditions=parse_conditions(conditions) if conditions else ())
    with store_of(tmp_path / "store") as other:
        assert selected(other, "") == []
        append(other, "d/s", b"x")
        refused = pytest.raises(InvalidRequest, match=message) if message else nullcontext()
        with (store if path else other).metadata.read() as txn, refused:
            explain_nothing(txn, selection)

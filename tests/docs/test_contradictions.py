"""The tables of contradictions in docs/settings.md are those that tierfs refuses or tells of, row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tierfs.app import store as app
from tierfs.app.setup.create import INSIDE, init_store
from tierfs.base.options import contradictions, policy, settings
from tierfs.base.options.config import Settings
from tierfs.base.options.contradictions import Rule
from tierfs.base.options.precedence import NO_HOST, Level, Policies, PolicyOrigin, SetBy
from tierfs.base.words.errors import InvalidRequest
from tierfs.engine.metadata import directories, policies, tables
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.engine.segments import create

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"\| `([a-z_.]+=[^`]*)`(, without a cold tier)? \| (refused|useless) \| (.*) \|")
HERE = PolicyOrigin(SetBy.DIRECTORY, "here")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the document."""

    pairs: tuple[tuple[str, str], ...]
    has_cold_tier: bool
    refused: bool
    why: str

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.pairs)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the policies or settings."""
        return tuple(key for key, _ in self.pairs)


def rows() -> Iterator[Row]:
    section = (ROOT / "docs/settings.md").read_text().split("### Contradictions\n", 1)[1].split("\n## ", 1)[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            row = _ROW.fullmatch(line)
            assert row is not None, line
            pairs = tuple((key, value) for key, _, value in (pair.partition("=") for pair in row[1].split()))
            yield Row(pairs, row[2] is None, row[3] == "refused", row[4])


OF_POLICIES = [row for row in rows() if "." not in row.pairs[0][0]]
OF_SETTINGS = [row for row in rows() if "." in row.pairs[0][0]]


def as_told(rule: Rule[Policies] | Rule[Settings]) -> tuple[tuple[str, ...], bool, str]:
    return rule.keys, rule.refused, rule.why


def test_the_document_has_every_rule_and_no_other() -> None:
    assert [(row.keys, row.refused, row.why) for row in OF_POLICIES] == [*map(as_told, contradictions.POLICIES)]
    assert [(row.keys, row.refused, row.why) for row in OF_SETTINGS] == [*map(as_told, contradictions.SETTINGS)]


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """A store with the directories `a/b`, with or without a cold tier as the row says: in S3, which has classes."""
    init_store(tmp_path / "store", INSIDE if request.param else None)
    with app.open_store(tmp_path / "store") as opened:
        with opened.metadata.write() as txn:
            create.make_directory(txn, "a/b")
            if request.param:
                place = policies.location(txn, txn.store.cold_location_id)
                txn.put(LOCATIONS, tables.u32(place.id), replace(place, url="s3://bucket/p"))
        yield opened


def change(store: app.Store, path: str, *pairs: tuple[str, str]) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, path, put_settings={key: policy.parse(key, value) for key, value in pairs})


def parametrized(refused: bool, of: list[Row]) -> pytest.MarkDecorator:
    chosen = [row for row in of if row.refused is refused]
    return pytest.mark.parametrize(
        ("store", "row"), [(row.has_cold_tier, row) for row in chosen], ids=map(str, chosen), indirect=["store"]
    )


@parametrized(True, OF_POLICIES)
def test_what_the_document_calls_refused_is_refused_in_either_order_and_below(store: app.Store, row: Row) -> None:
    *first, last = row.pairs
    orders = ((first, last), ([last], first[0])) if first else (([], last),)
    for before, after in orders:
        for place, below in (("a", "a"), ("a", "a/b"), ("a/b", "a")):
            if before:
                change(store, place, *before)
            with pytest.raises(InvalidRequest, match=re.escape(row.why)) as refusal:
                change(store, below, after)
            assert refusal.value.remedy
            with store.metadata.write() as txn:
                set_there = policies.settings_of(txn, directories.must_find(txn, below).id)
                assert after[0] not in set_there, "nothing is changed"
                for path in ("a", "a/b"):
                    policies.change(txn, path, put_settings={}, unset=row.keys)
    with pytest.raises(InvalidRequest, match=re.escape(row.why)):
        change(store, "", *row.pairs)


@parametrized(False, OF_POLICIES)
def test_what_the_document_calls_useless_is_told(store: app.Store, row: Row) -> None:
    with store.metadata.read() as txn:
        assert list(contradictions.useless(policies.at(txn, "a"))) == []
    change(store, "a", *row.pairs)
    with store.metadata.read() as txn:
        ((rule, told),) = contradictions.useless(policies.at(txn, "a/b"))
    assert (rule.keys, rule.why) == (row.keys, row.why)
    assert row.why in told
    assert "(directory a)" in told


@pytest.mark.parametrize("row", OF_SETTINGS, ids=str)
def test_settings_are_refused_or_told_as_the_document_says(tmp_path: Path, row: Row) -> None:
    file = tmp_path / "store.toml"
    sections: dict[str, list[str]] = {}
    for name, value in row.pairs:
        section, key = name.split(".")
        sections.setdefault(section, []).append(f"{key} = {value if value.isdigit() else repr(value)}")
    file.write_text("".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items()))
    if row.refused:
        with pytest.raises(InvalidRequest, match=re.escape(row.why)) as refusal:
            settings.load(file, {})
        assert str(file) in str(refusal.value)
        assert all(key in str(refusal.value) for key in row.keys)
        return
    (told,) = contradictions.useless_settings(settings.load(file, {}))
    assert all(key in told for key in row.keys)
    assert row.why in told


def is_refused(**values: int | str) -> bool:
    held = Policies.of((Level(HERE, {key: str(value) for key, value in values.items()}),), NO_HOST)
    try:
        contradictions.refuse(held)
    except InvalidRequest:
        return True
    return False


@pytest.mark.parametrize("limit", [1, 2, 86_400])
def test_a_threshold_has_to_be_below_its_limit(limit: int) -> None:
    for threshold, refused in ((limit - 1, False), (limit, True), (limit + 1, True)):
        assert is_refused(offload_after=threshold, retention_age=limit) is refused
        assert is_refused(offload_above_bytes=threshold, retention_bytes=limit) is refused


def test_what_never_offloads_may_have_a_retention_that_needs_no_offload_or_a_limit_of_bytes() -> None:
    for limit in ("retention_age", "retention_bytes"):
        assert is_refused(offload_after="off", **{limit: 10})
        assert not is_refused(offload_after="off", **{limit: 10}, retention_needs_offload="no")
        assert not is_refused(offload_after="off", **{limit: 10}, offload_above_bytes=9)
        assert not is_refused(offload_after="off", **{limit: "off"})
    assert is_refused(offload_after="off", retention_age=10, offload_above_bytes="off")


def test_the_defaults_contradict_nothing() -> None:
    assert not is_refused()
    assert list(contradictions.useless(Policies())) == []
    assert list(contradictions.useless_settings(Settings())) == []

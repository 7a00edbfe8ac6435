"""Every legal name: its objects' user metadata stay under the limit of a header, and the name comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.app.recovery.test_from_objects import rebuilt
from tests.commands import tierfs
from tests.ledgers import ROOMY, cold_entries, ledger_names, new_ledger, offload, offloader
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MAX_METADATA_BYTES, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.ledger import keys
from tierfs.tiering.backup.segment import dump_segment

LEDGER_BYTES = 21
"""Of a ledger's name below its managed ledger: a slash and 20 digits."""

ENTRIES = [b"first", b"", b"x" * 300]


def name_of(size_bytes: int, component: str) -> str:
    """Return a name of so many bytes, of components of at most 255 bytes made of this text."""
    parts: list[str] = []
    while size_bytes > 0:
        part = component.encode()[: min(size_bytes, 255)].decode(errors="ignore")
        part += "x" * (min(size_bytes, 255) - len(part.encode()))
        parts.append(part)
        size_bytes -= len(part.encode()) + 1
    return "/".join(parts)


SIZES = (1, 255, 409, 410, 760, 799 - LEDGER_BYTES, 800 - LEDGER_BYTES)
NAMES = [name_of(size, text * 255) for size in SIZES for text in ("a", "ä", "€", "%")]
NAMES += ["public/default/persistent/topic", "a b/%41/c+d", "ä/ö ü", "日本語/トピック"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=ROOMY) as opened:
        yield opened


def metadata_of(storage: ChunkStorage) -> dict[str, dict[str, str]]:
    """Return the user metadata of every object; none is too long for a header."""
    found = {item.name: dict(storage.stat(item.name).metadata) for item in storage.list("")}
    for name, metadata in found.items():
        assert sum(len(key) + len(value) for key, value in metadata.items()) <= MAX_METADATA_BYTES, name
    return found


def test_ledgers_of_every_name_offload_and_come_back(store: TestStore, tmp_path: Path) -> None:
    made = [new_ledger(store, ENTRIES, managed) for managed in NAMES]
    for name in made:
        offload(store, name)
    described = metadata_of(store.cold)
    for name in ledger_names(store):
        assert keys.managed_ledger(described[name]) in NAMES
        assert described[name][keys.MANAGED_LEDGER_KEY].isascii()
    for item in list(store.cold.list("journal/")):
        store.cold.delete(item.name)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert {name: cold_entries(found.store, name) for name in made} == dict.fromkeys(made, ENTRIES)
        assert found.left == {}


def test_extra_metadata_shorten_the_name_for_pulsar_and_are_refused_when_nothing_is_left(store: TestStore) -> None:
    managed = name_of(700, "a" * 255)
    name = new_ledger(store, ENTRIES, managed)
    store.cold_work().publish()
    with pytest.raises(InvalidRequest, match="extra metadata"):
        offloader(store).offload(store.segment(name).id, uuid4(), {"extra": "x" * 1000})
    offloader(store).offload(store.segment(name).id, uuid4(), {"extra": "x" * 500})
    metadata_of(store.cold)


@pytest.mark.parametrize(("managed", "cold"), [("ä b/%41", False), (name_of(800 - LEDGER_BYTES - 2, "€" * 255), True)])
def test_export_and_adopt_give_the_name_back(tmp_path: Path, managed: str, cold: bool) -> None:
    (tmp_path / "cold").mkdir()
    first, second = tmp_path / "first", tmp_path / "second"
    for store in (first, second):
        tierfs("-q", "init", *(("--cold-dir", tmp_path / "cold") if store == first else ()), store=store)
    name = tierfs("ledger", "create", managed, "--id", 7, store=first).out.strip()
    (tmp_path / "entry").write_bytes(b"payload")
    tierfs("ledger", "append", name, tmp_path / "entry", store=first)
    tierfs("-q", "seal", name, store=first)
    if cold:
        tierfs("-q", "offload", managed, store=first)
    tierfs("-q", "ledger", "export", managed, tmp_path / "out", store=first)
    tierfs("-q", "adopt", "--as", "pulsar", tmp_path / "out", "--into", "p", store=second)
    assert tierfs("ledger", "ls", store=second).out.rstrip("\n").endswith(f" p/{name}")


def test_segments_of_every_name_offload_dump_and_come_back(store: TestStore, tmp_path: Path) -> None:
    by_size = {1: "abc", 255: "dä€", 799: "eö香", 800: "fü港"}
    made = [name_of(size, text * 255) for size, texts in by_size.items() for text in texts]
    for name in made:
        store.append(name, name.encode())
    store.offload()
    for name in made:
        dump_segment(store.metadata, store.cold, name)
    metadata_of(store.cold)
    for item in list(store.cold.list("journal/")):
        store.cold.delete(item.name)
    with rebuilt(tmp_path / "new", store.cold) as found:
        assert {name: found.store.read(name, Tier.COLD) for name in made} == {name: name.encode() for name in made}

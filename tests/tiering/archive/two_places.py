"""A store whose archive is a second directory, and both places as another program sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.commands import Done, run, tierfs
from tests.reality.reference import reference
from tests.tiering.archive.archiving import LARGE, SMALL
from tierfs.app.store import Store, open_store
from tierfs.base.words.types import IN_PLACE
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import GarbageRecord, ObjectRecord
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS
from tierfs.upkeep.holder.perform import holding

DATA = {"a/large": reference(0, LARGE), "a/small": reference(1, SMALL), "b/small": reference(2, SMALL)}
AWAY = 12
"""Exit code of a place that is not the store's."""
BY_A_KEY = 4
"""Exit code of what a user may not do here."""


@dataclass(frozen=True)
class World:
    """A store with a cold tier and an archive place, in three directories."""

    path: Path
    cold: Path
    nas: Path

    def run(self, *words: object, check: bool = True) -> Done:
        """Run a command."""
        return tierfs(*words, store=self.path, check=check)

    def fill(self, data: Mapping[str, bytes]) -> None:
        """Write segments that are cold alone."""
        for name, content in data.items():
            tierfs("append", "-q", name, "--seal", store=self.path, stdin=content)
        self.run("offload")
        self.run("evict")

    def to_place(self, *words: object, check: bool = True) -> Done:
        """Move all objects to the archive place."""
        return self.run("archive", "--class", IN_PLACE, *words, check=check)

    def from_objects(self, *words: object, check: bool = True) -> Done:
        """Recover this store from its objects."""
        done = self.run("recover", "--from-objects", "--cold-dir", self.cold, "--yes", *words, check=False)
        assert not check or done.code == 0, done
        return done

    def records(self) -> list[ObjectRecord]:
        """Return the records of all objects."""
        with open_store(self.path) as store, store.metadata.read() as txn:
            return [record for _, record in txn.scan(OBJECTS)]

    def classes(self) -> set[str]:
        return {record.archive_class for record in self.records()}

    def problems(self) -> set[str]:
        """Return the kinds of problems that `status` shows."""
        return {problem["kind"] for problem in self.run("status", "--json", check=False).json["problems"]}

    def garbage(self) -> list[GarbageRecord]:
        with open_store(self.path) as store, store.metadata.read() as txn:
            return [record for _, record in txn.scan(GARBAGE)]

    def collect(self) -> None:
        """Delete all that no record needs, whatever its age."""
        with open_store(self.path) as store, holding(store, "test") as work:
            work.publish()
            make_due(store)
            assert not work.collect_all(grace_s=0).failed

    def read(self, name: str) -> tuple[int, bytes, bytes]:
        return run(["cat", name], {**os.environ, "TIERFS_STORE": str(self.path)}, b"")

    def require_data(self) -> None:
        for name, content in DATA.items():
            assert self.read(name) == (0, content, b"")

    def require_tidy(self) -> None:
        """Assert that both places have the objects that records name there, and no other."""
        self.collect()
        named: dict[int, set[str]] = {}
        for record in self.records():
            named.setdefault(record.location_id, set()).add(record.name)
        assert objects_in(self.cold) == named.get(1, set())
        assert objects_in(self.nas) == named.get(2, set())
        assert not self.garbage()

    def unmount(self) -> Path:
        """Leave an empty directory in the place of the archive; return where that is."""
        away = self.nas.with_name("nas.away")
        self.nas.rename(away)
        self.nas.mkdir()
        return away

    def mount(self, away: Path) -> None:
        self.nas.rmdir()
        away.rename(self.nas)


def objects_in(place: Path) -> set[str]:
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    return {name for name in found if name.startswith(("segments/", "packs/"))}


def make_due(store: Store) -> None:
    """Let all garbage be due."""
    with store.metadata.write() as txn:
        for key, row in list(txn.scan(GARBAGE)):
            txn.delete(GARBAGE.name, key)
            txn.put(GARBAGE, tables.pair(1, row.sequence), replace(row, due_ms=1))

"""Strays: chunk files that killed writers left, removed by the store's holder a little at a time.

Only while the metadata are those that the last walk saw, or newer. Where they went back, by a dump that was loaded, by
a backup copied in place, or by a repair, files that no record names may hold bytes that were acknowledged since: they
stay until a person has looked (`gc`, then `gc --delete`). A mark beside the metadata tells: the file of the metadata,
and their newest transaction. It is set for the first time, or again, once a walk found no such file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import TierfsError
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.garbage.orphans import OrphanFinder

log = logging.getLogger(__name__)

# Age of a file that is removed: as `gc` by default.
GRACE_MS = 3600 * 1000

# Between two walks, each of which looks at every chunk file (a guess).
_REST_S = 3600.0

_MARK_NAME = "walked"


@dataclass(frozen=True, slots=True)
class _Seen:
    inode: int
    transaction: int


class MetadataMark:
    """The mark of one store: what its metadata were when a walk last looked."""

    def __init__(self, metadata_path: Path) -> None:
        self._data = metadata_path / "data.mdb"
        self._path = metadata_path.with_name(_MARK_NAME)

    def holds(self, transaction: int) -> bool:
        """Return whether the metadata, whose newest transaction is given, did not go back since it was set."""
        seen = self._read()
        return seen is not None and seen.inode == self._inode() and seen.transaction <= transaction

    def set(self, transaction: int) -> None:
        """Set it to the metadata as they are. Not durable: an older mark only asks for less."""
        seen = json.dumps({"inode": self._inode(), "transaction": transaction})
        with map_os_errors(str(self._path)):
            new = self._path.with_name(f"{_MARK_NAME}.new")
            new.write_text(seen)
            new.chmod(osio.OWNER_FILE)
            os.replace(new, self._path)

    def remove(self) -> None:
        """Let files that no record names stay: the caller is about to change what records name."""
        with map_os_errors(str(self._path)):
            self._path.unlink(missing_ok=True)

    def _inode(self) -> int:
        with map_os_errors(str(self._data)):
            return self._data.stat().st_ino

    def _read(self) -> _Seen | None:
        try:
            fields = json.loads(self._path.read_text())
            return _Seen(int(fields["inode"]), int(fields["transaction"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # none yet, or cut short by a crash


class StrayFiles:
    """The walks of one holder. One thread at a time."""

    def __init__(self, metadata: MetadataStore, finder: OrphanFinder) -> None:
        self._metadata = metadata
        self._finder = finder
        self._mark = MetadataMark(metadata.path)
        self._steps: Iterator[Collected] | None = None
        self._rests_until_s = 0.0

    def step(self) -> Collected | None:
        """Look at a few files, and remove those that a walk found; None when it is over, and for a while after it."""
        if self._steps is None:
            if self._metadata.clock.monotonic_s() < self._rests_until_s:
                return None
            self._steps = self._walk()
        try:
            done = next(self._steps, None)
        except TierfsError:
            self._end()
            raise
        if done is None:
            self._end()
        return done

    def _end(self) -> None:
        self._steps = None
        self._rests_until_s = self._metadata.clock.monotonic_s() + _REST_S

    def _walk(self) -> Iterator[Collected]:
        trusted = began_trusted = self._mark.holds(self._metadata.last_transaction_id())
        kept = 0
        for strays in self._finder.strays(grace_ms=GRACE_MS if trusted else 0):
            trusted = trusted and self._mark.holds(self._metadata.last_transaction_id())
            if trusted and strays:
                log.info("removing %d unreferenced chunk files, the first is %s", len(strays), strays[0].name)
            if trusted:
                self._set_mark()
            else:
                kept += len(strays)
            yield self._finder.discard(strays) if trusted else Collected()
        if kept:
            log.info(
                "%d unreferenced chunk files are kept, because the metadata may be older: list them with `tierfs "
                "gc`, remove them with `tierfs gc --delete`",
                kept,
            )
        elif not began_trusted:  # else young files were not looked at
            self._set_mark()

    def _set_mark(self) -> None:
        """Set the mark as far as possible: on a full disk an older one still holds, and strays make room."""
        try:
            self._mark.set(self._metadata.last_transaction_id())
        except TierfsError as exc:
            log.info("cannot write the mark of this walk: %s", exc)

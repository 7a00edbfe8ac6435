"""Directories of followed files: each is listed again only when it has changed."""

from __future__ import annotations

import os

from tierfs.base.bytes.frozen import dataclass, field

# A directory that changed so recently may change again within the same tick of its clock: it is listed again. Network
# filesystems have ticks of a second, and some of two.
_TICK_NS = 2_000_000_000


@dataclass(slots=True)
class DirectoryNames:
    """The names in a directory."""

    names: frozenset[str] = frozenset()
    directories: frozenset[str] = frozenset()
    """Those of directories that are no links."""
    signature: tuple[int, int] = (0, 0)
    is_fresh: bool = False


@dataclass(slots=True)
class WatchedTree:
    """Listings by directory. `changed` is true when any was made again since `settle`."""

    changed: bool = True
    _listings: dict[str, DirectoryNames] = field(default_factory=dict)

    def listing(self, directory: str) -> DirectoryNames:
        """Return the listing of a directory, as of the last `look`; empty for one that cannot be read."""
        if directory not in self._listings:
            self._listings[directory] = DirectoryNames()
            self._look_at(directory, self._listings[directory], now_ns=0)
        return self._listings[directory]

    @property
    def directories(self) -> frozenset[str]:
        """All directories that have been listed."""
        return frozenset(self._listings)

    def look(self, now_ns: int) -> bool:
        """List again what has changed by `now_ns` of the wall clock; return whether anything had."""
        for directory, listing in list(self._listings.items()):
            self._look_at(directory, listing, now_ns=now_ns)
        return self.changed

    def settle(self, used: frozenset[str]) -> None:
        """Forget that anything changed, and all directories but those in use."""
        self.changed = False
        for directory in self._listings.keys() - used:
            del self._listings[directory]

    def _look_at(self, directory: str, listing: DirectoryNames, *, now_ns: int) -> None:
        try:
            status = os.stat(directory)
        except OSError:
            if listing.names or listing.is_fresh:
                self._listings[directory] = DirectoryNames()
                self.changed = True
            return
        signature = status.st_ino, status.st_mtime_ns
        if signature == listing.signature and listing.is_fresh:
            return
        names, directories = _scan(directory)
        self.changed = self.changed or (names, directories) != (listing.names, listing.directories)
        listing.names, listing.directories, listing.signature = names, directories, signature
        listing.is_fresh = now_ns - status.st_mtime_ns > _TICK_NS


def _scan(directory: str) -> tuple[frozenset[str], frozenset[str]]:
    try:
        with os.scandir(directory) as entries:
            rows = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return frozenset(), frozenset()
    return frozenset(name for name, is_dir in rows if not is_dir), frozenset(name for name, is_dir in rows if is_dir)

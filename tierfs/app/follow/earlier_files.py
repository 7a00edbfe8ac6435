"""The earlier files of logs, from one listing of a directory for all logs in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tierfs.app.follow import rotations
from tierfs.base.bytes.frozen import dataclass, field


@dataclass(frozen=True, slots=True)
class _LogDirectory:
    names: frozenset[str]
    earlier: Mapping[str, Sequence[str]]


@dataclass(slots=True)
class EarlierFiles:
    """Lists each directory once between two calls of `renew`.

    A directory of 500 logs has thousands of names while they are rotated: a listing for each log took a whole core.
    """

    _listings: dict[str, _LogDirectory] = field(default_factory=dict)
    _before: dict[str, _LogDirectory] = field(default_factory=dict)

    def renew(self) -> None:
        """Let each directory be listed again when it is asked for."""
        if self._listings:
            self._listings, self._before = {}, self._listings

    def of(self, directory: str, log: str) -> Sequence[str]:
        """Return the names of a log's earlier files, the oldest first; none for a directory that cannot be read."""
        if directory not in self._listings:
            self._listings[directory] = self._listing(directory)
        return self._listings[directory].earlier.get(log, ())

    def _listing(self, directory: str) -> _LogDirectory:
        try:
            names = frozenset(os.listdir(directory))
        except OSError:
            names = frozenset()
        before = self._before.get(directory)
        if before is not None and before.names == names:
            return before
        return _LogDirectory(names, rotations.earlier_files(names))

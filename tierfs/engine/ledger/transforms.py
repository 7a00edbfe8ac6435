"""Transforms: what may be done to a ledger's entries on their way out, by name. Pure.

A transform takes an entry and returns the entries that replace it: itself, several, or none. `unbatch` is tierfs's
own; a package adds others by entry points of the group `tierfs.transform`, each of which names such a function. The
bytes that tierfs holds and serves are never transformed: only what it writes for others is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.ledger import unbatch

GROUP = "tierfs.transform"

# Returns the entries that replace one.
Replace = Callable[[bytes], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform and its name, which the metadata of what it made have."""

    name: str
    replace: Replace

    def entries(self, entries: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the entries that replace these, in order.

        Raises InvalidRequest, naming transform and entry, where the transform fails or returns something else.
        """
        for number, entry in enumerate(entries):
            try:
                replaced = [bytes(memoryview(new)) for new in self.replace(entry)]
            except Exception as exc:  # code of a user: anything may be raised
                raise InvalidRequest(
                    f"transform {printable(self.name)} fails at entry {number}: {type(exc).__name__}: {exc}",
                    remedy="repair the package that provides it, or omit it",
                ) from exc
            yield from replaced


def names() -> list[str]:
    """Return the names of all transforms that are installed, in order."""
    return sorted({unbatch.NAME, *(point.name for point in entry_points(group=GROUP))})


def named(name: str) -> Transform:
    """Return a transform by its name. Raises InvalidRequest where none is installed, or its package does not load."""
    if name == unbatch.NAME:
        return Transform(name, unbatch.unbatch)
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        raise InvalidRequest(f"unknown transform {printable(name)!r}", remedy=f"known transforms: {', '.join(names())}")
    return Transform(name, _loaded(points[0]))


def _loaded(point: EntryPoint) -> Replace:
    try:
        loaded: Replace = point.load()
    except Exception as exc:  # of a package of a user
        raise InvalidRequest(
            f"transform {printable(point.name)} cannot be loaded: {type(exc).__name__}: {exc}",
            remedy=f"repair the package that provides {printable(point.value)}",
        ) from exc
    return loaded

"""Compare what a store holds with what was written. All raise Wrong."""

from __future__ import annotations

from tests.ledgers import reader
from tests.simulation.world import Wrong
from tests.stores import TestStore
from tierfs.reading.stream import copy_segment


def read(store: TestStore, name: str) -> bytes:
    """Return a segment's bytes by the product's reader."""
    out = bytearray()
    copy_segment(reader(store), store.segment(name), None, None, None, out.extend)
    return bytes(out)


def same(what: str, data: bytes, expected: bytes) -> None:
    """Compare bytes."""
    require(data == expected, f"{what} has {len(data)} bytes, not the {len(expected)} that were written")


def equal(what: str, found: object, expected: object) -> None:
    """Compare anything; of sets the difference is told."""
    if found != expected:
        detail = f"{found}, not {expected}"
        if isinstance(found, set) and isinstance(expected, set):
            detail = f"{found - expected} too many, {expected - found} missing"
        raise Wrong(f"{what}: {detail}")


def require(holds: bool, message: str) -> None:
    """Raise Wrong unless it holds."""
    if not holds:
        raise Wrong(message)

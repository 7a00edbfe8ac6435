"""`init --if-missing` where a store exists: compare its cold tier with the one that was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tierfs.app.setup.create import ColdChoice, InitReport, locate
from tierfs.app.store import open_store
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import AlreadyExists
from tierfs.engine.chunkstore.place import FILE_SCHEME
from tierfs.engine.metadata.records import LocationRecord

_NONE = "none"


def existing_store(path: Path, choice: ColdChoice) -> InitReport | None:
    """Return the report of the store in a directory; None if there is none. Changes nothing.

    Raises AlreadyExists, with each difference, for a store with another cold tier, and for a replica.
    """
    if not StorePaths(path).settings.exists():
        return None
    with open_store(path) as store:
        chosen, present, root = locate(choice), store.cold_location, store.path
        if store.is_replica:
            raise AlreadyExists(f"{root} is a replica of another store", remedy="choose another directory")
        differences = list(_differences(chosen, present, root))
        if differences:
            raise AlreadyExists(
                f"{root} is already a tierfs store, with another cold tier: {'; '.join(differences)}",
                remedy="keep the store with its cold tier, or copy that to another place: tierfs move --to PLACE",
            )
        url = present.url if present is not None else None
        return InitReport(root, store.metadata.store_id, url, (), created=False)


def _differences(chosen: LocationRecord | None, present: LocationRecord | None, root: Path) -> Iterator[str]:
    """Yield each difference; the region and the profile only if they were chosen, as `init` finds them otherwise."""
    wanted, has = _place(chosen, root), _place(present, root)
    if wanted != has:
        yield f"it is {has}, not {wanted}"
    elif chosen is not None and present is not None:
        for name in ("endpoint_url", "region", "profile"):
            new, old = getattr(chosen, name), getattr(present, name)
            if new != old and (new or name == "endpoint_url"):
                yield f"{name} is {old or _NONE}, not {new or _NONE}"


def _place(location: LocationRecord | None, root: Path) -> str:
    if location is None:
        return _NONE
    if location.url.startswith(FILE_SCHEME):
        return str(root / location.url.removeprefix(FILE_SCHEME))
    return location.url

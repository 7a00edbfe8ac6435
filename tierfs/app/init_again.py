"""`init --if-missing` where a store exists: compare its cold tier and policies with those that were chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tierfs.app.setup.create import NO_POLICIES, InitReport
from tierfs.app.store import Store, open_store
from tierfs.base.options import policy
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import AlreadyExists
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import policies

_NONE = "none"


def existing_store(
    path: Path, place: Place | None, root_policies: Mapping[str, str] = NO_POLICIES
) -> InitReport | None:
    """Return the report of the store in a directory; None if there is none. Changes nothing.

    It warns of each policy of the whole store that is not the chosen one: people may change policies later.
    Raises AlreadyExists, with each difference, for a store with another cold tier, and for a replica.
    """
    if not StorePaths(path).settings.exists():
        return None
    with open_store(path) as store:
        location, root = store.cold_location, store.path
        if store.is_replica:
            raise AlreadyExists(f"{root} is a replica of another store", remedy="choose another directory")
        chosen = None if place is None else place.of_store(root)
        present = None if location is None else store.place_of(location)
        differences = list(_differences(chosen, present))
        if differences:
            raise AlreadyExists(
                f"{root} is already a tierfs store, with another cold tier: {'; '.join(differences)}",
                remedy="keep the store with its cold tier, or copy that to another place: tierfs move --to PLACE",
            )
        url = None if location is None else location.url
        warnings = tuple(_other_policies(store, root_policies))
        return InitReport(root, store.metadata.store_id, url, warnings, created=False)


def _other_policies(store: Store, root_policies: Mapping[str, str]) -> Iterator[str]:
    with store.metadata.read() as txn:
        held = policies.at(txn, "")
    for key, text in root_policies.items():
        wanted, present = policy.from_stored(key, text), held.effective(key)
        if present.value != wanted:
            shown = f"{key} is {policy.format(key, present.value)} ({present.origin})"
            chosen = f"{key}={policy.format(key, wanted)}"
            yield f"{shown}, and stays so; to change it: tierfs config / {chosen}"


def _differences(chosen: Place | None, present: Place | None) -> Iterator[str]:
    """Yield each difference; the region and the profile only if they were chosen, as `init` finds them otherwise."""
    wanted, has = _shown(chosen), _shown(present)
    if wanted != has:
        yield f"it is {has}, not {wanted}"
    elif chosen is not None and present is not None:
        for name in ("endpoint_url", "region", "profile"):
            new, old = getattr(chosen.record, name), getattr(present.record, name)
            if new != old and (new or name == "endpoint_url"):
                yield f"{name} is {old or _NONE}, not {new or _NONE}"


def _shown(place: Place | None) -> str:
    return _NONE if place is None else str(place.directory or place.record.url)

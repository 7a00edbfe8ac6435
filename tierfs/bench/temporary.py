"""A store that exists for one run: beside another one, in the same cold tier, and gone afterwards."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tierfs import osio
from tierfs.app import store as app
from tierfs.app.store import Store
from tierfs.bench.children import signals_interrupt, uninterrupted
from tierfs.clock import SystemClock
from tierfs.errors import StorageFull
from tierfs.metadata import policies, tables
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.tables import LOCATIONS
from tierfs.parallel import Pool
from tierfs.setup.connect import FILE_SCHEME, connect_bare
from tierfs.setup.create import MAX_PREFIX_BYTES, MIN_FREE_BYTES, ColdChoice, init_store
from tierfs.types import MIB, ROOT_DIRECTORY, ReadPriority

_NEVER_S = "1000000000"
_DELETES_IN_PARALLEL = 8
_COPIES = 3
"""Of the measured bytes: a cold segment's before it is evicted, a local one's, and a cold tier's on this disk."""


@contextmanager
def temporary_store(original: Store, size_bytes: int) -> Iterator[Store]:
    """A new store beside `original`, with its settings, whose bytes move when they are told to.

    At the end all it wrote is deleted, in the cold tier too; also after Ctrl-C, SIGTERM and SIGHUP. Raises
    StorageFull, with nothing written, where `size_bytes` are too many.
    """
    _require_space(original, size_bytes)
    name = f"bench-{secrets.token_hex(4)}"
    directory = original.path.parent / f".tierfs-{name}"
    location = _location_beside(original, name)
    with signals_interrupt():
        try:
            _make(original, directory, location)
            with app.open_store(directory / "store") as store:
                _let_nothing_move(original, store)
                yield store
        finally:
            with uninterrupted():
                _remove(original, directory, location)


def _require_space(original: Store, size_bytes: int) -> None:
    free, needed = original.files.free_bytes(), _COPIES * size_bytes + MIN_FREE_BYTES
    if free < needed:
        raise StorageFull(
            f"{original.path} has {free // MIB} MiB free; this needs {needed // MIB} MiB",
            remedy="give a smaller --size",
        )


def _location_beside(original: Store, name: str) -> LocationRecord | None:
    """A place of its own inside the original's cold tier; S3's prefixes may not get too long."""
    if original.cold_location_id is None:
        return None
    with original.metadata.read() as txn:
        location = txn.must_get(LOCATIONS, tables.u32(original.cold_location_id), "the cold tier")
    if location.url.startswith(FILE_SCHEME):
        return replace(location, url=f"{FILE_SCHEME}{original.path / location.url.removeprefix(FILE_SCHEME) / name}")
    parts = urlsplit(location.url)
    prefix = f"{parts.path.strip('/')}/{name}".strip("/")
    if len(prefix.encode()) > MAX_PREFIX_BYTES:
        prefix = name
    return replace(location, url=f"{parts.scheme}://{parts.netloc}/{prefix}")


def _make(original: Store, directory: Path, location: LocationRecord | None) -> None:
    directory.mkdir(mode=osio.OWNER_DIRECTORY)
    init_store(directory / "store", _choice(location), SystemClock(), may_nest=True)
    shutil.copyfile(original.paths.settings, directory / "store" / original.paths.settings.name)


def _choice(location: LocationRecord | None) -> ColdChoice:
    if location is None:
        return ColdChoice(none=True)
    directory = _directory_of(location)
    if directory is not None:
        directory.mkdir(mode=osio.OWNER_DIRECTORY)
        return ColdChoice(cold_dir=directory)
    return ColdChoice(
        bucket_url=location.url,
        endpoint_url=location.endpoint_url or None,
        region=location.region or None,
        profile=location.profile or None,
    )


def _let_nothing_move(original: Store, store: Store) -> None:
    """The original's policies, but that bytes stay where they are until a command moves them."""
    with original.metadata.read() as txn:
        found = dict(policies.settings_of(txn, ROOT_DIRECTORY))
    found |= {"chunk_age": _NEVER_S, "offload_after": _NEVER_S, "read_priority": ReadPriority.LOCAL_FIRST.value}
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, found)


def _remove(original: Store, directory: Path, location: LocationRecord | None) -> None:
    shutil.rmtree(directory, ignore_errors=not directory.exists())
    if location is None:
        return
    cold = _directory_of(location)
    if cold is not None:
        shutil.rmtree(cold, ignore_errors=not cold.exists())
        return
    with (
        closing(connect_bare(location, original.path, original.settings.cold)) as storage,
        Pool(_DELETES_IN_PARALLEL, "tierfs-bench") as pool,
    ):
        pool.run(lambda found: storage.delete(found.name), list(storage.list("")))


def _directory_of(location: LocationRecord) -> Path | None:
    return Path(location.url.removeprefix(FILE_SCHEME)) if location.url.startswith(FILE_SCHEME) else None

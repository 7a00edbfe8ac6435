"""Open the store that a data frame names: a directory, or a bucket whose journal is followed by a replica here.

The replica of a bucket lies in a private directory of the machine's temporary files and is brought up to date each time
it is opened; it may be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from tierfs import osio
from tierfs.app import mount
from tierfs.app.store import Store, open_store
from tierfs.errors import InvalidRequest, NotFound, PermissionDenied
from tierfs.holder.lock import HeldElsewhere
from tierfs.metadata.store import new_id
from tierfs.setup.connect import FILE_SCHEME, S3_SCHEME
from tierfs.setup.create import ColdChoice
from tierfs.store_paths import StorePaths

STORE_VARIABLE = "TIERFS_STORE"
URL_PREFIX = "tierfs://"
_KEY_DIGITS = 32


def open_source(
    where: str | None = None,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    profile: str | None = None,
) -> Store:
    """Open the store in the directory `where` (TIERFS_STORE by default), or a replica of a bucket's URL.

    A URL is `s3://BUCKET/PREFIX`, or `file:///DIR` of a cold tier that is a directory. The caller closes the store.
    Raises NotFound where there is no store or journal, DataLoss for a journal that cannot be read, and what the
    storage raises.
    """
    where = where or os.environ.get(STORE_VARIABLE)
    if not where:
        raise InvalidRequest(
            "no store is named",
            remedy=f"name it with the option store, or set {STORE_VARIABLE}: a directory or s3://B/P",
        )
    if "://" not in where:
        return open_store(Path(where))
    return _open_replica(_choice(where, endpoint_url, region, profile))


def split_url(text: str) -> tuple[str | None, str]:
    """Split `tierfs:///STORE/NAME` into store and name; no store for `tierfs://NAME` and a bare name.

    Raises NotFound where no part of the path is a store.
    """
    path = text.removeprefix(URL_PREFIX)
    if path == text or not path.startswith("/"):
        return None, path
    store = store_of(path)
    if store is None:
        raise NotFound(f"no part of {text} is a store", remedy="write tierfs:///STORE/NAME, or give the option store")
    return store, below(store, path) or ""


def store_of(path: str) -> str | None:
    """Return the store that an absolute path leads into, its longest leading part that is one; None where none is."""
    if not path.startswith("/"):
        return None
    place = PurePosixPath(os.path.normpath(path))
    for candidate in (place, *place.parents):
        if StorePaths(Path(candidate)).settings.is_file():
            return str(candidate)
    return None


def below(store: str, path: str) -> str | None:
    """Return the part of a path after the store's directory; None where the path does not begin with it."""
    whole, directory = PurePosixPath(os.path.normpath(path)), PurePosixPath(os.path.normpath(store))
    if not whole.is_relative_to(directory):
        return None
    inside = str(whole.relative_to(directory))
    return "" if inside == "." else inside


def _choice(url: str, endpoint_url: str | None, region: str | None, profile: str | None) -> ColdChoice:
    scheme, _, rest = url.partition("://")
    if scheme == S3_SCHEME:
        return ColdChoice(bucket_url=url, endpoint_url=endpoint_url, region=region, profile=profile)
    if f"{scheme}:" == FILE_SCHEME and rest.startswith("/"):
        return ColdChoice(cold_dir=Path(rest))
    raise InvalidRequest(f"{url} is not a store", remedy="name its directory, or its bucket: s3://BUCKET/PREFIX")


def _open_replica(choice: ColdChoice) -> Store:
    path = _replica_path(choice)
    if not StorePaths(path).settings.is_file():
        _create(path, choice)
        return open_store(path)
    store = open_store(path)
    try:
        refresh_source(store)
    except BaseException:
        store.close()
        raise
    return store


def refresh_source(store: Store) -> None:
    """Bring the replica of a bucket up to date, with one listing where nothing is new; other stores need no refresh.

    Raises what the storage raises.
    """
    if store.is_replica:
        with suppress(HeldElsewhere):  # another process brings it up to date at this moment
            mount.refresh(store)


def _create(path: Path, choice: ColdChoice) -> None:
    """Make the replica beside its place and move it there: of two processes one is first, and both may use it."""
    from tierfs.recovery.replica import create_replica

    making = path.with_name(f"{path.name}.{new_id()}")
    try:
        create_replica(making, choice, lambda _: None)
        try:
            making.rename(path)
        except OSError:
            if not StorePaths(path).settings.is_file():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _replica_path(choice: ColdChoice) -> Path:
    place = (choice.bucket_url, choice.cold_dir, choice.endpoint_url, choice.region, choice.profile)
    key = hashlib.sha256(repr(place).encode()).hexdigest()[:_KEY_DIGITS]
    root = Path(tempfile.gettempdir()) / f"tierfs-replicas-{os.geteuid()}"
    try:
        osio.private_directory(root)
    except PermissionError as exc:
        text = f"{root} is no place for a replica: {exc.strerror}"
        raise PermissionDenied(text, remedy="remove it, or set TMPDIR to a directory of your own") from exc
    return root / key

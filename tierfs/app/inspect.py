"""Find the object that a person names, in the store's cold tier, by a URL, or as a file; and read its header.

Nothing is written there. A store is needed for names in its cold tier only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tierfs.app.recovery import object_headers
from tierfs.app.store import Store
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import InvalidRequest, NotDirectory, NotFound, no_cold_tier
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import EntryKind
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.place import USUAL, Place, Server
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import directories

_URL = "://"
_HERE = ("/", "./", "../")


def inspect(wanted: str, store: Store | None, server: Server) -> object_headers.ObjectHeader:
    """Read what an object says of itself; `store`: the one whose names count, if one is open.

    Raises NotFound, InvalidRequest for a name without a store, and what the place raises.
    """
    with _opened(wanted, store, server) as (storage, name):
        try:
            return object_headers.header_of(storage, name)
        except NotFound as exc:
            if name == wanted and Path(wanted).is_file():
                raise NotFound(str(exc), remedy=f"for the local file: tierfs inspect {as_word(f'./{wanted}')}") from exc
            if store is not None and name == wanted and _is_segment(store, wanted):
                raise NotFound(str(exc), remedy=f"for the segment: tierfs info {as_word(wanted)}") from exc
            raise


def _is_segment(store: Store, text: str) -> bool:
    with store.metadata.read() as txn, suppress(InvalidRequest, NotDirectory):
        entry = directories.find(txn, text)
        return entry is not None and entry.kind is EntryKind.SEGMENT
    return False


@contextmanager
def _opened(wanted: str, store: Store | None, server: Server) -> Iterator[tuple[ChunkStorage, str]]:
    if _URL in wanted:
        place, name = _of_url(wanted, store, server)
        with closing(place.shared(NullMetrics(), sweeps=False)) as storage:
            yield storage, name
    elif wanted.startswith(_HERE) or (store is None and Path(wanted).exists()):
        root, name = _of_file(Path(wanted))
        with closing(DirectoryStorage(root)) as storage:
            yield storage, name
    elif store is None:
        raise InvalidRequest(
            f"{printable(wanted)}: no such file, and no --store given",
            remedy="give its store with --store, or the URL of the object",
        )
    else:
        location_id = store.cold_location_id
        if location_id is None:
            raise no_cold_tier(f"the object {printable(wanted)}")
        yield store.storage_of(location_id), wanted


def _of_url(url: str, store: Store | None, server: Server) -> tuple[Place, str]:
    """Split a URL of an object into a place and the object's name there, as tierfs or Pulsar would name it."""
    scheme, _, rest = url.partition(_URL)
    bucket, _, key = rest.partition("/")
    if not key:
        raise InvalidRequest(f"{printable(url)} is not the URL of an object", remedy=f"write {scheme}{_URL}BUCKET/KEY")
    name = object_headers.known_suffix(key) or key.rpartition("/")[2]
    prefix = key.removesuffix(name).removesuffix("/")
    above = f"{scheme}{_URL}{bucket}/{prefix}".removesuffix("/")
    own = None if store is None else store.cold_location
    if own is not None and server == USUAL and f"{above}/".startswith(f"{own.url}/"):
        server = Server(own.endpoint_url, own.region, own.profile)
    settings = ColdSettings() if store is None else store.settings.cold
    return Place.foreign(above, server, settings), name


def _of_file(file: Path) -> tuple[Path, str]:
    """Split the path of a file into the root of a cold tier and the object's name in it."""
    path = str(file.absolute())
    if not file.is_file():
        kind = "a directory" if file.is_dir() else "not a file"
        remedy = f"see: tierfs check --help, or ls {as_word(path)}" if file.is_dir() else None
        raise NotFound(f"{printable(path)} is {kind}, so not an object", remedy=remedy)
    name = object_headers.known_suffix(path.lstrip("/")) or file.name
    return Path(path.removesuffix(f"/{name}") or "/"), name

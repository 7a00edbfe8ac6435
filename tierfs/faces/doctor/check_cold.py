"""Checks of the cold tier: whether it answers, its speed, its clock, and the guarantees tierfs relies on."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing

from tierfs.app.store import Store
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.probe import (
    BucketRules,
    DescribedStorage,
    ReadAbilities,
    ServedStorage,
    Traits,
    probe,
    probe_kept,
    probe_reads,
)
from tierfs.engine.chunkstore.protocol import Abilities, ChunkStorage, Supports, supports_of
from tierfs.engine.chunkstore.s3 import additions
from tierfs.engine.journal import cold_identity
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import store_ownership, tables
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.faces.doctor.clock import clock_finding
from tierfs.faces.doctor.findings import DoctorFinding, fail, ok, warn

_SAMPLES = 5
# A request within a continent is faster; beyond it every first read is felt.
_SLOW_S = 0.2

_MS_PER_S = 1000
_ONE_OWNER = "open this store for writing on one machine only, or use a server that honours If-None-Match"
_CLOCK = "clock of the cold tier"


def check_cold(store: Store, location_id: LocationId) -> Iterator[DoctorFinding]:
    """Yield every check of the location, which is asked without retries. Raises what the storage raises."""
    with store.metadata.read() as txn:
        record = txn.store
        owns = store_ownership.owns_bucket(record)
        location = txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}")
    with closing(_connected(store, location)) as storage:
        served = storage if isinstance(storage, ServedStorage) else None
        if served is not None:  # before all others: a wrong clock is why they are refused
            yield server_clock(served, store.clock)
        if owns:  # else nothing is written there either
            cold_identity.examine(storage, record)
        yield reachable(storage, location, store.clock)
        if owns:  # probing writes, which a store that may only be read does not
            traits = storage.traits if isinstance(storage, DescribedStorage) else None
            probed = probe(storage, keeps=location.keeps_objects)
            yield from abilities(Abilities(**_recorded(location)), probed, traits)
            yield joins(supports_of(storage))
        if owns and served is not None:
            yield from reads(probe_reads(storage, served, keeps=location.keeps_objects))
            yield from rules(served.bucket_rules())
            yield from kept(store.settings.cold, probe_kept(storage, served, keeps=location.keeps_objects))
        elif owns and additions.told(store.settings.cold):
            text = f"{additions.told(store.settings.cold)}: no effect, because the cold tier is not in S3"
            yield warn("new objects", printable(text), "remove the settings: tierfs config")


def _connected(store: Store, location: LocationRecord) -> ChunkStorage:
    try:
        return store.place_of(location).open()
    except NotFound as exc:
        raise cold_identity.wrong_cold_tier(str(exc)) from exc


def server_clock(served: ServedStorage, clock: Clock) -> DoctorFinding:
    """Check whether the server's clock and ours agree, as signatures need it."""
    before_ms = clock.now_ms()
    server_ms = served.server_time_ms()
    if server_ms is None:
        return ok(_CLOCK, "the server does not report its time")
    ahead_ms = (before_ms + clock.now_ms()) // 2 - server_ms
    return clock_finding(_CLOCK, abs(ahead_ms), "ahead of the server" if ahead_ms > 0 else "lag behind the server")


def reachable(storage: ChunkStorage, location: LocationRecord, clock: Clock) -> DoctorFinding:
    """Check whether the journal is there, and time one small request."""
    name = "cold tier"
    where = printable(location.url) + (f" at {location.endpoint_url}" if location.endpoint_url else "")
    first = next(storage.list(JOURNAL_PREFIX), None)
    if first is None:
        return fail(
            name, f"{where}: contains no journal of a store", "check that this is the bucket given to tierfs init"
        )
    taken_s = []
    for _ in range(_SAMPLES):
        started_s = clock.monotonic_s()
        storage.stat(first.name)
        taken_s.append(clock.monotonic_s() - started_s)
    return latency(where, statistics.median(taken_s))


def latency(where: str, median_s: float) -> DoctorFinding:
    """Check whether a small request is answered soon."""
    text = f"{where}: a small request takes {median_s * _MS_PER_S:.1f} ms (median of {_SAMPLES})"
    if median_s > _SLOW_S:
        return warn("cold tier", text, "use a bucket in this machine's region, or move the machine")
    return ok("cold tier", text)


def abilities(recorded: Abilities, probed: Abilities, traits: Traits | None = None) -> Iterator[DoctorFinding]:
    """Compare the guarantees that writes rely on, probed now, with those found when the store was made.

    `traits` are those of a place that is neither a directory nor S3.
    """
    yield _create_only(recorded, probed, traits)
    if traits is None:
        multipart = (
            "honoured"
            if probed.create_only_multipart
            else "not honoured; tierfs checks for the object before each upload instead"
        )
        yield ok("create-only for multipart uploads", multipart)
        yield _checksum(recorded, probed)
    else:
        yield ok("large objects", traits.joins or "written as one stream")
        yield ok(
            "upload checksum",
            traits.checksum or "none: damage that the network's own checks miss is found only by reading",
        )
    yield _deletes(recorded, probed)


def joins(supports: Supports) -> DoctorFinding:
    """Report how consolidation makes one object of several."""
    if supports.concat:
        return ok("consolidation", "the place joins whole objects without copying a byte")
    if supports.copies:
        return ok("consolidation", "the place copies the bytes; those that it cannot copy pass through this machine")
    return ok("consolidation", "the bytes pass through this machine: downloaded and uploaded again")


def rules(observed: BucketRules) -> Iterator[DoctorFinding]:
    """Check the bucket's rules for deleted objects: it may keep them, and charge for them."""
    name = "versions"
    if observed.versioned:
        text = "the bucket is versioned: deleted objects stay as old versions and cost money"
        yield warn(name, text, "add a lifecycle rule to the bucket that expires noncurrent versions")
    else:
        yield ok(
            name, "not kept" if observed.versioned is not None else "unknown: the key has no permission to read it"
        )
    name = "object lock"
    if observed.lock:
        text = f"every new object is locked ({observed.lock}): deleted objects stay until then and cost money"
        yield warn(name, text, "use a bucket without a default retention, unless you need the lock")
    else:
        yield ok(
            name,
            "no default retention" if observed.lock is not None else "unknown: the key has no permission to read it",
        )


def kept(settings: ColdSettings, lacking: Sequence[str]) -> Iterator[DoctorFinding]:
    """Check whether new objects are kept as the settings ask for; nothing is said where they do not."""
    name, asked = "new objects", additions.told(settings)
    if lacking:
        text = f"requested {asked}; the server accepts but ignores: {', '.join(lacking)}"
        yield warn(name, printable(text), "add a rule to the bucket, or remove the setting: tierfs config")
    elif asked:
        yield ok(name, printable(f"{asked}: done"))


def reads(probed: ReadAbilities) -> Iterator[DoctorFinding]:
    """Check the guarantees that reads rely on."""
    name = "presigned ranges"
    if probed.presigned_ranges is None:
        yield ok(name, "not used: turned off, or the environment sets a proxy")
    elif probed.presigned_ranges:
        yield ok(name, "accepted")
    else:
        yield warn(name, "refused: reads take three times the CPU", "export TIERFS_COLD__PRESIGNED_READS=false")
    yield ok("If-Match", "honoured" if probed.if_match else "not honoured; the etag of each answer is compared instead")


def _create_only(recorded: Abilities, probed: Abilities, traits: Traits | None) -> DoctorFinding:
    name = "create-only"
    if probed.create_only_put:
        means = f", by {traits.create_only}" if traits is not None else ""
        return ok(name, f"honoured{means}: a second owner of the bucket is fenced")
    text = "the server ignores If-None-Match: two owners of one bucket are not kept apart"
    if traits is not None:
        text = "the place overwrites existing objects: only an advisory lease separates two owners"
    if not recorded.create_only_put:
        return warn(name, text, _ONE_OWNER)
    return fail(name, f"{text}; when the store was created it did not", _ONE_OWNER)


def _checksum(recorded: Abilities, probed: Abilities) -> DoctorFinding:
    name = "upload checksum"
    if not recorded.verifies_crc32c:
        return ok(name, "the server verifies the MD5 of each upload")
    if probed.verifies_crc32c:
        return ok(name, "the server verifies the CRC32C of each upload")
    text = "the server no longer verifies the CRC32C of uploads: bytes damaged in transit would be stored"
    return fail(name, text, "use a server that honours x-amz-checksum-crc32c, as this one did at tierfs init")


def _deletes(recorded: Abilities, probed: Abilities) -> DoctorFinding:
    name = "delete"
    if probed.deletes:
        return ok(name, "allowed" if recorded.deletes else "allowed; when the store was created it was not")
    text = "the key has no permission to delete: removed objects stay in the bucket; tierfs gc lists them"
    return warn(name, text, "allow the key to delete objects, unless this is an archive that only grows")


def _recorded(location: LocationRecord) -> dict[str, bool]:
    return {
        "create_only_put": location.create_only_put,
        "create_only_multipart": location.create_only_multipart,
        "verifies_crc32c": location.verifies_crc32c,
        "deletes": not location.keeps_objects,
    }

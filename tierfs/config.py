"""Every setting of a store, as one tree of frozen dataclasses: `STORE/store.toml` read by `settings.py`.

Clock, storage and caches are components, never settings. Each field states its unit, why its default is
what it is, and what changing it costs. Credentials are never settings: botocore's chain finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tierfs.types import MIB, ReadPriority


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How reads use memory, connections and time."""

    budget_bytes: int = 256 * MIB
    """Memory for fetched bytes, shared by all readers. Less slows many parallel readers."""
    streams: int = 4
    """Large fetches in flight (measured: 3 to 8 make no difference on two cores, 1 costs a quarter)."""
    urgent_streams: int = 16
    """Fetches in flight, besides those, of up to 1 MiB that a reader waits for: bounds random reads at once."""
    max_window_bytes: int = 64 * MIB
    """How far one sequential reader runs ahead; beyond this nothing was gained."""
    deadline_s: float = 90.0
    """A read that has not got its bytes by then ends in EIO; until then it tries again. Long enough for a server to
    restart: 30 s to end, 12 s to start (measured for Ceph RGW), 30 s for a load balancer to notice, and some;
    below the 120 s after which Linux reports a task that hangs."""
    open_files: int = 256
    """Local chunk files kept open for reading."""
    local_threads: int = 8
    """Threads for local bytes that are not in the page cache."""
    priority: ReadPriority | None = None
    """Overrides the policies' read priority for this store."""
    cache_bytes: int = 0
    """Disk for fetched bytes, kept over restarts; 0, the default: none, as only its owner knows whether the disk
    is faster than the way to the bucket. Each GiB costs 2 MiB of memory."""
    cache_directory: str = ""
    """Where they are kept, best on a disk of its own; relative to the store's directory, empty: `cache` there.
    Its parent must exist."""


@dataclass(frozen=True, slots=True)
class ColdSettings:
    """How the cold tier is talked to."""

    connections: int = 32
    """Connections to S3 kept open."""
    requests_in_flight: int = 32
    """Requests of all kinds at once; above it callers wait."""
    parts_in_parallel: int = 4
    """Parts of one multipart upload at once; each holds 8 MiB of memory."""
    attempts: int = 5
    """Tries of a request that failed for a reason that may pass."""
    retry_base_s: float = 0.1
    retry_max_s: float = 5.0
    """First and longest pause between tries; full jitter."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0
    presigned_reads: bool = True
    """Ranged GETs through one presigned URL (measured: a third of the CPU); off: get_object."""
    addressing: str = "auto"
    """auto, path or virtual."""
    allowed_locations: str = ""
    """Places that the bucket's journal names and this store may read, besides its own: their URLs, separated by
    spaces, each followed by @ and the URL of its server where it has one. Only of a recovered store and a replica."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How appends use the local disk."""

    free_space_floor_bytes: int = 64 * MIB
    """Appends are refused when the local disk has less; room for evict and collect to commit."""
    open_chunks: int = 256
    """Active chunk files kept open; idle ones beyond it are closed and reopened."""


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """How bytes reach the cold tier."""

    objects_in_parallel: int = 2
    """Objects uploaded at once, each in `cold.parts_in_parallel` parts (two cores: more gains nothing)."""
    pack_below_bytes: int = 4 * MIB
    """Objects to make that are smaller share one, up to `object_bytes`, also below a sixteenth of that; 0: none do.
    Fewer requests; what one segment gives up stays until most of the object is dead."""
    ledger_block_bytes: int = 64 * MIB
    """Blocks of the objects that ledgers become, each a part of the upload: at least 5 MiB, Pulsar's is 64 MiB. Each
    part in flight holds one in memory; an entry has to fit into one."""
    grace_s: int = 3600
    """How long replaced or deleted objects stay for readers that still hold their layout."""
    checkpoint_entries: int = 1000
    """Journal entries between two checkpoints: bounds what a recovery replays."""
    consolidate_chunks: int = 8
    """Small neighbouring cold chunks of a growing segment that are joined into one object; 0: only by command.
    More copies bytes less often and leaves more small objects."""
    relocate_dead_percent: int = 80
    """How much of an object must be dead, its head cut off, before the rest is copied and the object goes."""
    relocate_min_bytes: int = 8 * MIB
    """Smaller objects stay although they are mostly dead: they cost less than copying them."""
    relocate_max_bytes: int = 1024 * MIB
    """And so do larger ones: of what is left, at most a fifth is copied and read back at once."""


@dataclass(frozen=True, slots=True)
class BackgroundSettings:
    """How the background writer works. When chunks end, move and go is policy, not a setting."""

    tick_s: float = 1.0
    """How often it looks for something to do; what changes shows within so long."""
    owner_check_s: float = 60.0
    """How often it asks whether the bucket is still this store's while it has nothing to publish: one LIST."""
    request_poll_s: float = 0.2
    """How often it looks for requests of other processes."""
    takeover_s: float = 1.0
    """How often a mount that is not the holder tries to become it."""
    replica_refresh_s: float = 5.0
    """How often a mounted replica looks for news of its bucket: one LIST each time."""
    high_watermark_percent: int = 80
    """Use of the local filesystem above which cold bytes are evicted before their lag has passed."""
    high_watermark_bytes: int = 0
    """The same for the bytes of local chunks, where the filesystem is shared; 0: no such limit."""
    unoffloaded_watermark_percent: int = 50
    """Share of the filesystem (and of high_watermark_bytes) that bytes on this disk alone may take before
    the largest are offloaded first and active chunks end early."""
    lifetimes_every_s: float = 300.0
    """How often it looks for segments to seal by policy and for bytes that are no longer kept; ages count in hours."""
    clocks_every_s: float = 60.0
    """How often it looks whether the clocks agree, for `status`; every timed deletion looks by itself."""
    retention_needs_offload: bool = True
    """Bytes that are not cold and named by the journal stay, however old; off: retention drops them all the same."""
    retry_first_s: float = 1.0
    retry_longest_s: float = 300.0
    """First and longest pause before work that failed is tried again; doubled each time."""


@dataclass(frozen=True, slots=True)
class MountSettings:
    """How the mount behaves."""

    poll_s: float = 0.25
    """How often changes of other processes are looked for; they show within 1 s."""
    sealed_timeout_s: float = 300.0
    """How long the kernel trusts attributes of sealed segments (changes are pushed to it)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a store."""

    read: ReadSettings = field(default_factory=ReadSettings)
    write: WriteSettings = field(default_factory=WriteSettings)
    cold: ColdSettings = field(default_factory=ColdSettings)
    offload: OffloadSettings = field(default_factory=OffloadSettings)
    background: BackgroundSettings = field(default_factory=BackgroundSettings)
    mount: MountSettings = field(default_factory=MountSettings)

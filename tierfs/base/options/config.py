"""Every setting of a store, as one tree of frozen dataclasses: `STORE/store.toml` read by `settings.py`.

Clock, storage and caches are components, never settings. The annotation of each field holds its unit and its text in
the template: the meaning, the reason for the default, and the cost of changing it. Credentials are never settings:
botocore's chain finds them.
"""

from __future__ import annotations

from typing import Annotated

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.options.kinds import (
    Addressing,
    AtOnce,
    BlockSize,
    Budget,
    Count,
    CountOrNone,
    Directory,
    Encryption,
    KmsKey,
    LogFormat,
    LogLevel,
    Percent,
    Seconds,
    SecondsOrNone,
    Size,
    SizeOrNone,
    StorageClass,
    Tags,
    Timeout,
    WholeSecondsOrNone,
)
from tierfs.base.words.types import MIB, ReadPriority


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Memory, connections and time of reads."""

    budget_bytes: Annotated[
        Budget, "Memory for fetched bytes, shared by all readers. Less slows many parallel readers."
    ] = 256 * MIB
    streams: Annotated[
        AtOnce,
        "Most large fetches in flight. A near server gets 4 (measured: 3 to 8 make no difference on two cores, 1 costs "
        "a quarter); one far away as many as its link takes, which `tierfs top` shows.",
    ] = 32
    urgent_streams: Annotated[
        AtOnce, "Further fetches in flight, of up to 1 MiB that a reader waits for: bounds random reads at once."
    ] = 16
    max_window_bytes: Annotated[
        Size,
        "Most bytes that one sequential reader runs ahead. Beyond 32 MiB only where a link far away needs them "
        "(measured: elsewhere larger windows gained nothing).",
    ] = 128 * MIB
    deadline_s: Annotated[
        Timeout,
        "A read without its bytes after this time ends in EIO; until then it tries again. Long enough for a server "
        "to restart: 30 s to end, 12 s to start (measured for Ceph RGW), 30 s for a load balancer to notice, and "
        "some; below the 120 s after which Linux reports a task that hangs.",
    ] = 90.0
    open_files: Annotated[Count, "Local chunk files kept open for reading."] = 256
    local_threads: Annotated[AtOnce, "Threads for local bytes that are not in the page cache."] = 8
    priority: Annotated[ReadPriority | None, "Read priority where no policy sets one."] = None
    override_priority: Annotated[
        ReadPriority | None,
        "Read priority on this host whatever the policies say; only a mount's option and a call are stronger. "
        "`local-only` also keeps local bytes from being evicted.",
    ] = None
    cache_bytes: Annotated[
        SizeOrNone,
        "Disk for fetched bytes, kept over restarts. 0, the default, is none: only the owner knows whether the disk "
        "is faster than the way to the bucket. Each GiB costs 2 MiB of memory.",
    ] = 0
    cache_directory: Annotated[
        Directory,
        "Directory of the cache, best on a disk of its own; relative to the store's directory; empty: `cache` there. "
        "Its parent must exist.",
    ] = ""


@dataclass(frozen=True, slots=True)
class ColdSettings:
    """Requests to the cold tier."""

    connections: Annotated[AtOnce, "Connections to S3 kept open."] = 64
    requests_in_flight: Annotated[AtOnce, "Requests of all kinds at once; above it callers wait."] = 64
    parts_in_parallel: Annotated[
        AtOnce,
        "Most parts of uploads at once; each holds 8 MiB of memory. A near server gets 4, one far away as many as its "
        "link takes.",
    ] = 16
    attempts: Annotated[Count, "Tries of a request that failed for a reason that may pass."] = 5
    retry_base_s: Annotated[SecondsOrNone, "First pause between tries; full jitter."] = 0.1
    retry_max_s: Annotated[SecondsOrNone, "Longest pause between tries; full jitter."] = 5.0
    connect_timeout_s: Annotated[Timeout, "Time to connect to the server."] = 5.0
    read_timeout_s: Annotated[Timeout, "Longest silence of a server that is answering."] = 20.0
    presigned_reads: Annotated[
        bool, "Ranged GETs through one presigned URL (measured: a third of the CPU); off: get_object."
    ] = True
    addressing: Annotated[Addressing, "auto, path or virtual."] = "auto"
    quota_bytes: Annotated[
        SizeOrNone,
        "Bytes that the store may have in the cold tier, objects that are replaced or removed and not deleted yet "
        "included; at this nothing more is offloaded, and the local disk fills. 0: no limit.",
    ] = 0
    storage_class: Annotated[
        StorageClass,
        "Storage class of new objects that hold segments' bytes; empty: the bucket's. Most classes charge for at least "
        "128 KiB and 30 days of each object.",
    ] = ""
    encryption: Annotated[
        Encryption,
        "Encryption of all new objects by the server: bucket (as the bucket says), AES256 (SSE-S3), aws:kms or "
        "aws:kms:dsse.",
    ] = "bucket"
    kms_key: Annotated[KmsKey, "Key of aws:kms and aws:kms:dsse; empty: the account's own key for S3."] = ""
    tags: Annotated[
        Tags,
        "Tags of new objects that hold segments' bytes, NAME=VALUE, with a blank between two. S3 charges for tags.",
    ] = ""
    requester_pays: Annotated[
        bool, "Agree to pay for requests to buckets whose owner asks for that, those of adopted objects included."
    ] = False
    allowed_locations: Annotated[
        str,
        "Places that the bucket's journal names and this store may read, besides its own: their URLs, separated by "
        "spaces, each followed by @ and the URL of its server where it has one. Only of a recovered store and a "
        "replica.",
    ] = ""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Use of the local disk by appends."""

    free_space_floor_bytes: Annotated[
        SizeOrNone, "Appends are refused when the local disk has less; room for evict and collect to commit."
    ] = 64 * MIB
    open_chunks: Annotated[Count, "Active chunk files kept open; idle ones beyond it are closed and reopened."] = 256


@dataclass(frozen=True, slots=True)
class AckSettings:
    """Appends that are acknowledged by the cold tier: policy `ack`."""

    pool_bytes: Annotated[
        Size, "Appends of this many bytes together are sent at once, as one object; a larger one has an object alone."
    ] = 4 * MIB
    delay_s: Annotated[
        SecondsOrNone,
        "Time from one object to the next, in which appends wait for each other, and longest wait for the "
        "answer to the one before: two requests to write each time, and one LIST. More costs fewer requests, and "
        "answers later.",
    ] = 0.02
    deadline_s: Annotated[
        Seconds,
        "Time from the call of an append with `ack=cold`, or of the commit of a distributed write, to its end, "
        "whatever it waits for: others, requests and their repeats, the journal. As `read.deadline_s`.",
    ] = 90.0


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """Transfers to the cold tier."""

    objects_in_parallel: Annotated[
        AtOnce,
        "Objects uploaded at once, in `cold.parts_in_parallel` parts together (two cores: more gains nothing).",
    ] = 2
    pack_below_bytes: Annotated[
        SizeOrNone,
        "Smaller objects share one, up to `object_bytes`, and also below a sixteenth of that; 0: none do. Fewer "
        "requests; bytes that one segment gives up stay until most of the object is dead.",
    ] = 4 * MIB
    ledger_block_bytes: Annotated[
        BlockSize,
        "Blocks of the objects of ledgers, each a part of the upload: at least 5 MiB, below 2 GiB, Pulsar's is 64 MiB. "
        "Each part in flight holds one in memory; an entry has to fit into one.",
    ] = 64 * MIB
    grace_s: Annotated[
        WholeSecondsOrNone, "Replaced or deleted objects stay so long for readers that still hold their layout."
    ] = 3600
    checkpoint_entries: Annotated[
        Count, "Journal entries between two checkpoints: bounds the replay of a recovery."
    ] = 1000
    consolidate_chunks: Annotated[
        CountOrNone,
        "Small neighbouring cold chunks of a growing segment that are joined into one object; 0: only by command. "
        "More copies bytes less often and leaves more small objects.",
    ] = 8
    relocate_dead_percent: Annotated[
        Percent, "Dead share of an object, its head cut off, above which the rest is copied and the object goes."
    ] = 80
    relocate_min_bytes: Annotated[
        Size, "Smaller objects stay although they are mostly dead: they cost less than copying them."
    ] = 8 * MIB
    relocate_max_bytes: Annotated[
        Size, "And so do larger ones: at most a fifth of an object is copied and read back at once."
    ] = 1024 * MIB


@dataclass(frozen=True, slots=True)
class BackgroundSettings:
    """Periods and limits of the background writer. When chunks end, move and go is policy, not a setting."""

    tick_s: Annotated[Seconds, "Period of looking for work; changes show within so long."] = 1.0
    owner_check_s: Annotated[
        Seconds,
        "Period of asking, with nothing to publish, whether the bucket is still this store's: one LIST. A superseded "
        "store acknowledges appends for so long.",
    ] = 60.0
    request_poll_s: Annotated[Seconds, "Period of looking for requests of other processes."] = 0.2
    takeover_s: Annotated[Seconds, "Period in which a mount that is not the holder tries to become it."] = 1.0
    replica_refresh_s: Annotated[
        Seconds, "Period in which a mounted replica looks for news of its bucket: one LIST each time."
    ] = 5.0
    high_watermark_percent: Annotated[
        Percent, "Use of the local filesystem above which cold bytes are evicted before their lag has passed."
    ] = 80
    high_watermark_bytes: Annotated[
        SizeOrNone, "The same for the bytes of local chunks, where the filesystem is shared; 0: no such limit."
    ] = 0
    unoffloaded_watermark_percent: Annotated[
        Percent,
        "Share of the filesystem (and of high_watermark_bytes) that bytes on this disk alone may take before the "
        "largest are offloaded first and active chunks end early.",
    ] = 50
    lifetimes_every_s: Annotated[
        Seconds,
        "Period of looking for segments to seal by policy and for bytes that are no longer kept; ages count in hours.",
    ] = 300.0
    clocks_every_s: Annotated[
        Seconds, "Period of comparing the clocks, for `status`; every timed deletion looks by itself."
    ] = 60.0
    retention_needs_offload: Annotated[
        bool,
        "Bytes that are not cold and named by the journal stay, however old; off: retention drops them all the same. "
        "Where no policy `retention_needs_offload` is set.",
    ] = True
    retry_first_s: Annotated[Seconds, "First pause before failed work is tried again; doubled each time."] = 1.0
    retry_longest_s: Annotated[Seconds, "Longest pause before failed work is tried again."] = 300.0


@dataclass(frozen=True, slots=True)
class MountSettings:
    """Periods of the mount."""

    poll_s: Annotated[Seconds, "Period of looking for changes of all processes; they show within 1 s."] = 0.1
    attribute_timeout_s: Annotated[
        SecondsOrNone, "Time the kernel trusts names and attributes (changes are pushed to it)."
    ] = 300.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log of a mount or daemon in the background: `STORE/log/`."""

    level: Annotated[LogLevel, "Least level of its lines: debug, info or warning."] = "info"
    format: Annotated[LogFormat, "text, or json: one object per line."] = "text"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Metrics of a daemon, in Prometheus' text format; a mount has them in `.tierfs/metrics`."""

    listen: Annotated[str, "HOST:PORT of a server of metrics, like 127.0.0.1:9150; none if empty."] = ""
    textfile: Annotated[Directory, "File written every `textfile_s`, for a collector of files; none if empty."] = ""
    textfile_s: Annotated[Seconds, "Period of that."] = 15.0


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The admin API: `tierfs admin`."""

    listen: Annotated[
        str, "HOST:PORT to serve over TCP too, like 127.0.0.1:9160; none if empty: the socket in the store alone."
    ] = ""
    certificate: Annotated[
        Directory, "File with the certificate of TCP, and those above it; another address than this machine's needs it."
    ] = ""
    key: Annotated[Directory, "File with the certificate's key, without a password."] = ""
    token: Annotated[Directory, "File with the token that TCP asks for; made by the first start."] = "admin.token"
    names: Annotated[str, "Further names, separated by spaces, by which requests may call the server in Host."] = ""
    connections: Annotated[
        AtOnce, "Connections at once, of the socket in the store and of TCP each; further ones are closed."
    ] = 256
    body_bytes: Annotated[Size, "Largest append: it is in memory until it is durable."] = 64 * MIB
    bodies_bytes: Annotated[Size, "Memory for the bodies of all requests together; above it callers wait."] = 256 * MIB
    head_s: Annotated[Timeout, "Time for the line and the headers of a request, and of waiting for a first one."] = 10.0
    body_s: Annotated[Timeout, "Longest silence inside a body, and inside an answer that its reader does not take."] = (
        30.0
    )
    pulsar_root: Annotated[
        str, "Directory of the store in which Pulsar's admin client finds the tenants; the root if empty."
    ] = ""
    writer_idle_s: Annotated[
        SecondsOrNone, "Time after which a segment that nobody appends to any more is left to other processes."
    ] = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a store."""

    read: ReadSettings = field(default_factory=ReadSettings)
    write: WriteSettings = field(default_factory=WriteSettings)
    cold: ColdSettings = field(default_factory=ColdSettings)
    ack: AckSettings = field(default_factory=AckSettings)
    offload: OffloadSettings = field(default_factory=OffloadSettings)
    background: BackgroundSettings = field(default_factory=BackgroundSettings)
    mount: MountSettings = field(default_factory=MountSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)

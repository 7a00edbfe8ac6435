"""Every setting of a store, as one tree of frozen dataclasses: `STORE/store.toml` read by `settings.py`.

Clock, storage and caches are components, never settings. The annotation of each field holds its unit and its text in
the template: the meaning, the reason for the default, and the cost of changing it. Credentials are never settings:
botocore's chain finds them.
"""

from __future__ import annotations

from typing import Annotated

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.options.kinds import (
    Address,
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
    Patience,
    Percent,
    PortOrAddress,
    Program,
    Rate,
    Seconds,
    SecondsOrNone,
    Size,
    SizeOrNone,
    StorageClass,
    Tags,
    Timeout,
    Users,
    WhenSpent,
    WholeSecondsOrNone,
)
from tierfs.base.words.types import MIB, ReadPriority


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Memory, connections and time of reads."""

    budget_bytes: Annotated[
        Budget,
        "Memory for fetched bytes, shared by all readers. Less slows many parallel readers. In a container it is at "
        "most a third of what the memory limit leaves above 128 MiB.",
    ] = 256 * MIB
    streams: Annotated[
        AtOnce,
        "Maximum large fetches in flight. A nearby server gets 4 (measured: 3 to 8 make no difference on two cores, "
        "1 costs "
        "a quarter); a distant one as many as its link can carry, shown by `tierfs top`.",
    ] = 32
    urgent_streams: Annotated[
        AtOnce, "Additional fetches in flight, up to 1 MiB each, that readers wait for: limits parallel random reads."
    ] = 16
    max_window_bytes: Annotated[
        Size,
        "Read-ahead limit of one sequential reader. More than 32 MiB helps only on a long-distance link "
        "(measured: elsewhere larger windows gained nothing).",
    ] = 128 * MIB
    deadline_s: Annotated[
        Timeout,
        "A read that has no bytes after this time fails with EIO; until then it is retried. Long enough for a server "
        "to restart: 30 s to stop, 12 s to start (measured for Ceph RGW), 30 s until a load balancer notices, and a "
        "margin; below the 120 s after which Linux reports a hung task.",
    ] = 90.0
    open_files: Annotated[Count, "Local chunk files kept open for reading."] = 256
    local_threads: Annotated[AtOnce, "Threads for local bytes that are not in the page cache."] = 8
    bandwidth: Annotated[
        Rate,
        "Bytes per second from the cold tier of one mount, with its warm-ups, or of one command; 0: no limit. At least "
        "128 KiB. Bytes that a reader waits for come before read-ahead, and readers share it fairly.",
    ] = 0
    user_bandwidth: Annotated[
        Rate, "The same limit for the readers of each user of a mount; 0: no limit. At least 128 KiB."
    ] = 0
    hourly_bytes: Annotated[
        SizeOrNone,
        "Bytes from the cold tier that each user may read per hour; 0: any number. The spending fades evenly, "
        "all of a budget within an hour, and survives restarts.",
    ] = 0
    hourly_requests: Annotated[
        CountOrNone, "Requests to the cold tier that the reads of each user may make per hour; otherwise the same."
    ] = 0
    when_spent: Annotated[
        WhenSpent,
        "Reads of a user whose hourly bytes or requests are spent: wait (continue at the hourly rate; a read that "
        "waits longer than `deadline_s` fails) or refuse (fail at once). Both fail with EDQUOT; local and cached bytes "
        "can be read.",
    ] = "wait"
    exempt_users: Annotated[
        Users,
        "Users without the hourly limits: names or numbers, separated by blanks. Root is not exempt by default.",
    ] = ""
    priority: Annotated[ReadPriority | None, "Read priority where no policy sets one."] = None
    override_priority: Annotated[
        ReadPriority | None,
        "Read priority on this host; it overrides the policies, and only a mount's option and a call override it. "
        "`local-only` also keeps local bytes from being evicted.",
    ] = None
    cache_bytes: Annotated[
        SizeOrNone,
        "Disk space for fetched bytes, kept across restarts. 0, the default, disables it: only the owner knows "
        "whether the disk is faster than the link to the bucket. Each GiB costs 2 MiB of memory.",
    ] = 0
    cache_directory: Annotated[
        Directory,
        "Directory of the cache, preferably on its own disk; relative to the store's directory; empty: `cache` there. "
        "Its parent must exist.",
    ] = ""


@dataclass(frozen=True, slots=True)
class ColdSettings:
    """Requests to the cold tier."""

    connections: Annotated[AtOnce, "Connections to S3 kept open."] = 64
    requests_in_flight: Annotated[AtOnce, "Parallel requests of all kinds; above it callers wait."] = 64
    parts_in_parallel: Annotated[
        AtOnce,
        "Maximum parts uploaded in parallel; each needs 8 MiB of memory. A nearby server gets 4, a distant one as "
        "many as its link can carry.",
    ] = 16
    attempts: Annotated[Count, "Attempts for a request that fails for a temporary reason."] = 5
    retry_base_s: Annotated[SecondsOrNone, "First pause between attempts; full jitter."] = 0.1
    retry_max_s: Annotated[SecondsOrNone, "Longest pause between attempts; full jitter."] = 5.0
    connect_timeout_s: Annotated[Timeout, "Time to connect to the server."] = 5.0
    read_timeout_s: Annotated[Timeout, "Longest silence of a server while it answers."] = 20.0
    presigned_reads: Annotated[
        bool, "Ranged GETs through one presigned URL (measured: a third of the CPU); off: get_object."
    ] = True
    addressing: Annotated[Addressing, "auto, path or virtual."] = "auto"
    quota_bytes: Annotated[
        SizeOrNone,
        "Maximum bytes of the store in the cold tier, including replaced or removed objects that are not deleted "
        "yet; at the limit offloading pauses, and the local disk fills up. 0: no limit.",
    ] = 0
    storage_class: Annotated[
        StorageClass,
        "Storage class of new objects with segments' bytes; empty: the bucket's. Most classes charge for at least "
        "128 KiB and 30 days of each object.",
    ] = ""
    encryption: Annotated[
        Encryption,
        "Server-side encryption of all new objects: bucket (the bucket's default), AES256 (SSE-S3), aws:kms or "
        "aws:kms:dsse.",
    ] = "bucket"
    kms_key: Annotated[KmsKey, "Key of aws:kms and aws:kms:dsse; empty: the account's own key for S3."] = ""
    tags: Annotated[
        Tags,
        "Tags of new objects with segments' bytes, NAME=VALUE, separated by blanks. S3 charges for tags.",
    ] = ""
    requester_pays: Annotated[
        bool, "Agree to pay for requests to requester-pays buckets, including those of adopted objects."
    ] = False
    allowed_locations: Annotated[
        str,
        "Places in the bucket's journal that this store may read in addition to its own: their URLs, separated by "
        "spaces, each followed by @ and its server's URL if it has one. Only for a recovered store or a replica.",
    ] = ""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Use of the local disk by appends."""

    free_space_floor_bytes: Annotated[
        SizeOrNone, "Appends are refused below this free space on the local disk; evict and gc need it to commit."
    ] = 64 * MIB
    open_chunks: Annotated[Count, "Active chunk files kept open; above it idle ones are closed and reopened."] = 256


@dataclass(frozen=True, slots=True)
class AckSettings:
    """Appends that are acknowledged by the cold tier: policy `ack`."""

    pool_bytes: Annotated[
        Size, "Appends that reach this total size are sent at once, as one object; a larger append gets its own object."
    ] = 4 * MIB
    delay_s: Annotated[
        SecondsOrNone,
        "Time from one object to the next, in which appends are collected, and longest wait for the answer to the "
        "previous one: two write requests and one LIST each time. More means fewer requests and later answers.",
    ] = 0.02
    deadline_s: Annotated[
        Seconds,
        "Time limit of an append with `ack=cold`, or of the commit of a distributed write, including all its waits: "
        "for other writers, requests, retries and the journal. Chosen as `read.deadline_s`.",
    ] = 90.0


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """Transfers to the cold tier."""

    objects_in_parallel: Annotated[
        AtOnce,
        "Objects uploaded in parallel, with `cold.parts_in_parallel` parts in total (two cores: more gains nothing).",
    ] = 2
    pack_below_bytes: Annotated[
        SizeOrNone,
        "Smaller objects are packed into one of up to `object_bytes`, those below a sixteenth of that too; 0: never. "
        "Saves requests; bytes that a segment deletes are kept until most of the object is dead.",
    ] = 4 * MIB
    ledger_block_bytes: Annotated[
        BlockSize,
        "Block size of ledger objects, a block is one part of the upload: at least 5 MiB, below 2 GiB; Pulsar's is "
        "64 MiB. Each part in flight needs one block of memory; an entry must fit into a block.",
    ] = 64 * MIB
    bandwidth: Annotated[
        Rate,
        "Bytes per second, in each direction, of the background work, `tierfs offload`, consolidation and `tierfs "
        "move`; 0: no limit. At least 128 KiB. Appends with `ack=cold`, the journal and reads do not wait for it.",
    ] = 0
    grace_s: Annotated[
        WholeSecondsOrNone, "Time that replaced or deleted objects are kept for readers that still use their layout."
    ] = 3600
    checkpoint_entries: Annotated[
        Count, "Journal entries between two checkpoints: limits the replay of a recovery."
    ] = 1000
    consolidate_chunks: Annotated[
        CountOrNone,
        "Number of small neighbouring cold chunks of a growing segment that are joined into one object; 0: only by "
        "command. A higher number copies bytes less often and keeps more small objects.",
    ] = 8
    relocate_dead_percent: Annotated[
        Percent, "Dead share of an object whose head is trimmed, above which the rest is copied and the object deleted."
    ] = 80
    relocate_min_bytes: Annotated[
        Size, "Smaller objects are kept even if mostly dead: keeping them costs less than copying."
    ] = 8 * MIB
    relocate_max_bytes: Annotated[
        Size, "Larger objects are kept too: at most a fifth of an object is copied and read back at once."
    ] = 1024 * MIB


@dataclass(frozen=True, slots=True)
class BackgroundSettings:
    """Periods and limits of the background writer. When chunks end, move and go is policy, not a setting."""

    tick_s: Annotated[
        Seconds,
        "Interval between checks for work; changes show within this time, and are in the journal within three times "
        "that.",
    ] = 1.0
    owner_check_s: Annotated[
        Seconds,
        "Interval, with nothing to publish, between checks that the bucket is still this store's: one LIST each. A "
        "superseded store acknowledges appends for up to this time.",
    ] = 60.0
    request_poll_s: Annotated[Seconds, "Interval between checks for requests of other processes."] = 0.2
    takeover_s: Annotated[Seconds, "Interval at which a mount that is not the holder tries to become it."] = 1.0
    replica_refresh_s: Annotated[
        Seconds, "Interval at which a mounted replica checks its bucket for changes: one LIST each time."
    ] = 5.0
    high_watermark_percent: Annotated[
        Percent, "Use of the local filesystem above which cold bytes are evicted before their lag has passed."
    ] = 80
    high_watermark_bytes: Annotated[
        SizeOrNone, "The same limit in bytes of local chunks, for a shared filesystem; 0: no such limit."
    ] = 0
    unoffloaded_watermark_percent: Annotated[
        Percent,
        PortOrAddress,
        "Share of the filesystem (and of high_watermark_bytes) that bytes only on this disk may use; above it the "
        "largest are offloaded first and active chunks are completed early.",
    ] = 50
    lifetimes_every_s: Annotated[
        Seconds,
        "Interval between checks for segments to seal by policy and for bytes past their retention; ages count in "
        "hours.",
    ] = 300.0
    clocks_every_s: Annotated[
        Seconds, "Interval between comparisons of the clocks, for `status`; every timed deletion also compares them."
    ] = 60.0
    retention_needs_offload: Annotated[
        bool,
        "Retention keeps bytes of any age until they are cold and in the journal; off: it drops them anyway. Applies "
        "where no policy `retention_needs_offload` is set.",
    ] = True
    retry_first_s: Annotated[Seconds, "First pause before failed work is retried; doubled each time."] = 1.0
    retry_longest_s: Annotated[Seconds, "Longest pause before failed work is retried."] = 300.0


@dataclass(frozen=True, slots=True)
class StandbySettings:
    """Takeover by a replica: `tierfs replica --standby`."""

    takeover_after_s: Annotated[
        Patience,
        "Time without a sign of life of the owner after which this replica takes its bucket over; the owner then shows "
        "one six times in this time. 0: it takes over only by `tierfs standby --now`.",
    ] = 0
    check: Annotated[
        Program,
        "Program with its arguments that runs before a takeover, and allows it by exit code 0; empty: none.",
    ] = ""
    check_timeout_s: Annotated[Seconds, "Time after which a check that does not end counts as a refusal."] = 30.0


@dataclass(frozen=True, slots=True)
class MountSettings:
    """Periods of the mount."""

    poll_s: Annotated[Seconds, "Interval between checks for changes of all processes; they show within 1 s."] = 0.1
    attribute_timeout_s: Annotated[
        SecondsOrNone, "Time that the kernel caches names and attributes (changes are pushed to it)."
    ] = 300.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log of a mount or daemon in the background: `STORE/log/`."""

    level: Annotated[LogLevel, "Lowest level that is logged: debug, info or warning."] = "info"
    format: Annotated[LogFormat, "text, or json: one object per line."] = "text"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Metrics of mounts and daemons, in Prometheus' text format; a mount has them in `.tierfs/metrics` too."""

    listen: Annotated[
        PortOrAddress,
        "PORT of this machine, or HOST:PORT, to serve metrics over HTTP, like 127.0.0.1:9150; empty: no server.",
    ] = ""
    public: Annotated[bool, "Whether other machines may read the metrics at `listen`."] = False
    textfile: Annotated[Directory, "File written every `textfile_s`, for a textfile collector; empty: no file."] = ""
    textfile_s: Annotated[Seconds, "Interval between writes of the text file."] = 15.0


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The admin API: `tierfs admin`."""

    listen: Annotated[
        Address, "HOST:PORT to serve over TCP too, like 127.0.0.1:9160; empty: only the socket in the store."
    ] = ""
    certificate: Annotated[
        Directory, "File with the certificate chain for TCP; required unless the address is this machine's own."
    ] = ""
    key: Annotated[Directory, "File with the certificate's key, without a password."] = ""
    token: Annotated[Directory, "File with the token that TCP clients must send; created by the first start."] = (
        "admin.token"
    )
    senders: Annotated[
        Directory, "File with a line DIRECTORY TOKEN for each host that may only follow logs into that directory."
    ] = ""
    prices: Annotated[
        Directory, "File of prices for the dashboard, as for tierfs report --cost; empty: it shows amounts alone."
    ] = ""
    names: Annotated[str, "Additional server names, separated by spaces, that requests may have in Host."] = ""
    connections: Annotated[
        AtOnce, "Maximum connections, for the socket in the store and for TCP each; further ones are closed."
    ] = 256
    body_bytes: Annotated[Size, "Largest append; it is kept in memory until it is durable."] = 64 * MIB
    bodies_bytes: Annotated[Size, "Memory for the bodies of all requests together; above it callers wait."] = 256 * MIB
    head_s: Annotated[
        Timeout, "Time limit for the line and headers of a request, and for the first request to arrive."
    ] = 10.0
    body_s: Annotated[
        Timeout, "Longest silence within a request body, and within an answer that the client does not read."
    ] = 30.0
    pulsar_root: Annotated[
        str, "Directory of the store that has the tenants of Pulsar's admin client; empty: the root."
    ] = ""
    writer_idle_s: Annotated[
        SecondsOrNone, "Time without appends after which a segment is released to other processes."
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
    standby: StandbySettings = field(default_factory=StandbySettings)
    mount: MountSettings = field(default_factory=MountSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)

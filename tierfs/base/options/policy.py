"""Policies: settings of directories and segments that inherit downwards, and their defaults.

People write them as `chunk_bytes=64MiB`, `deletion_lag=4h`, `read_priority=local-first`. The stored form is plain:
bytes, whole seconds, a read priority's name, or the word `off`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import IN_PLACE, MIB, Ack, Compression, ReadPriority

# Of a chunk and of an object: 8192 parts of 8 MiB, and 2 MiB of checksums, which one change of the journal holds.
MAX_OBJECT_BYTES = 64 << 30

# Settings that decide how large one file or object gets.
BOUNDED_SIZES = ("chunk_bytes", "object_bytes")

_TIMES = {"chunk_age": "chunk_age_s", "trash_age": "trash_age_s"}
_TIERING = {
    "offload_after": "offload_after_s",
    "offload_above_bytes": "offload_above_bytes",
    "deletion_lag": "deletion_lag_s",
    "archive_after": "archive_after_s",
}
_LIFETIMES = {
    "seal_bytes": "seal_bytes",
    "seal_age": "seal_age_s",
    "ledger_entries": "ledger_entries",
    "retention_age": "retention_age_s",
    "retention_bytes": "retention_bytes",
}

# Stored form of a setting that is switched off, so that a child can override what its parent sets.
OFF = units.OFF

# Settings that end segments or their bytes; each may be off.
LIFETIME_KEYS = tuple(_LIFETIMES)

# Settings that move bytes between the tiers; each may be off, which Pulsar writes as a negative number.
TIERING_KEYS = tuple(_TIERING)

_OPTIONAL = {**_TIERING, **_LIFETIMES}

_SWITCHES = ("retention_needs_offload",)

# Settings that take one of a few words.
_CHOICES: Mapping[str, type[ReadPriority] | type[Ack] | type[Compression]] = {
    "read_priority": ReadPriority,
    "ack": Ack,
    "compression": Compression,
}

# Settings that take a level.
_LEVELS = ("compression_level",)

# Of zstd, whose program needs an option of its own for levels above.
_MIN_LEVEL, _MAX_LEVEL = 1, 19

# Settings that take the name of something: that is installed, or that a server has.
_NAMES = ("transform", "archive_class")

# Names under which settings are stored.
KEYS = (*BOUNDED_SIZES, *_TIMES, *TIERING_KEYS, *LIFETIME_KEYS, *_SWITCHES, *_CHOICES, *_LEVELS, *_NAMES)

# Bytes, seconds, a number, yes or no, a word, a name, or None for what is off.
Value = int | bool | ReadPriority | Ack | Compression | str | None

_SIZE_SUFFIX = "_bytes"
_COUNT_SUFFIX = "_entries"

_MAY_BE_OFF = (*TIERING_KEYS, *LIFETIME_KEYS, *_NAMES)
# Of no bytes, Pulsar's documents say of its threshold: as soon as possible.
_MAY_BE_EMPTY = ("offload_above_bytes",)
# Off is 0 here: nothing stays. Of `chunk_age` 0 would end a chunk with each append.
_OFF_IS_ZERO = ("trash_age",)
_NEGATIVE = re.compile(r"-[0-9]+")
_NAME = re.compile(r"[!-~]{1,100}")
# As `cold.storage_class`: S3 and Ceph name classes so. A URL is none: the archive place has a name, IN_PLACE.
_CLASS = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CLASS_KEY = "archive_class"

_MAX_COUNT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings in force for one segment. Sizes in bytes, times in seconds."""

    chunk_bytes: int = 64 * MIB
    """Length at which the active chunk rolls. Bigger chunks cost fewer objects and records, and evict later."""
    object_bytes: int = 64 * MIB
    """Largest object an offload makes from neighbouring sealed chunks."""
    chunk_age_s: int = 600
    """Age at which the active chunk ends, so that a slow segment is cold in time too."""
    offload_after_s: int | None = 0
    """Time from the end of a chunk to its offload; more joins small neighbours into one object. None: until a command
    or the disk needs it, or `offload_above_bytes`."""
    offload_above_bytes: int | None = None
    """Bytes of complete chunks of a stream, or of a managed ledger, that may be on this disk alone before the oldest
    chunks or closed ledgers are offloaded; 0: as soon as they are complete."""
    deletion_lag_s: int | None = 4 * 3600
    """Time that local bytes stay after they are cold, so that fresh data is read locally; None: until room is
    needed."""
    seal_bytes: int | None = None
    """Length at which a segment is sealed and continued in its successor; None: it grows without end."""
    seal_age_s: int | None = None
    """Time after its first byte at which a segment is sealed and continued in its successor."""
    ledger_entries: int | None = None
    """Entries after which a ledger of a managed ledger is closed; besides these, seal_bytes and seal_age close it."""
    retention_age_s: int | None = None
    """Time that bytes are kept after they were written; None: for ever."""
    retention_bytes: int | None = None
    """Number of a stream's newest bytes that are kept."""
    retention_needs_offload: bool = True
    """Whether bytes that are not cold, and named by the journal, stay however old or many they are."""
    trash_age_s: int = 86_400
    """Time that what a person removed stays in the trash, from which it can be restored; 0: none."""
    read_priority: ReadPriority = ReadPriority.LOCAL_FIRST
    """Tier that serves a byte in both tiers. A byte that is still local costs no request and waits for no server.
    Pulsar's proposal of read priorities has offloaded-first as its default."""
    ack: Ack = Ack.LOCAL
    """Where appended bytes have to be durable before the append is acknowledged."""
    compression: Compression = Compression.OFF
    """Whether new cold objects are compressed. Readers get the same bytes in every case."""
    compression_level: int = 3
    """Level of zstd: more makes smaller objects, and takes longer to make them."""
    archive_after_s: int | None = None
    """Time after which a cold object moves to the storage class `archive_class`, from when its bytes became cold; None:
    only a command moves it."""
    archive_class: str | None = None
    """Storage class of S3 that is the archive, or IN_PLACE; None: there is none."""
    transform: str | None = None
    """Name of the transform of the entries of ledgers that are exported; None: they leave as they are."""

    @property
    def compresses(self) -> bool:
        """Whether new cold objects may be compressed; segments that differ in it share none."""
        return self.compression is not Compression.OFF

    @property
    def never_offloads(self) -> bool:
        """Whether no time and no size makes bytes cold: only a command, or the disk's need for room, does."""
        return self.offload_after_s is None and self.offload_above_bytes is None


def parse(key: str, text: str) -> str:
    """Return the stored form of `text`, typed for `key`. Raises InvalidRequest naming key and allowed values."""
    check_key(key)
    try:
        if key in _CHOICES:
            return _CHOICES[key](text.strip()).value
        if key in _LEVELS:
            return str(_parse_level(text))
        if key in _SWITCHES:
            return format(key, units.parse_flag(text))
        if key in _MAY_BE_OFF and (units.is_off(text) or (key in TIERING_KEYS and _NEGATIVE.fullmatch(text.strip()))):
            return OFF
        if key in _OFF_IS_ZERO and units.is_off(text):
            return "0"
        if key in _NAMES:
            return _parse_name(key, text.strip())
        if key.endswith(_SIZE_SUFFIX):
            most_bytes = MAX_OBJECT_BYTES if key in BOUNDED_SIZES else units.MAX_BYTES
            return str(_parse_size(text, most_bytes, may_be_empty=key in _MAY_BE_EMPTY))
        if key.endswith(_COUNT_SUFFIX):
            return str(_parse_count(text))
        return str(_parse_time(text, at_least_s=1 if key in LIFETIME_KEYS else 0))
    except ValueError as exc:
        raise InvalidRequest(f"invalid value {text!r} for policy {key}", remedy=f"expected {allowed(key)}") from exc


@lru_cache(1024)  # the same few texts are read whenever the settings in force are put together
def from_stored(key: str, text: str) -> Value:
    """Return the value of a stored form. Raises InvalidRequest for a key that does not exist, ValueError for damage."""
    check_key(key)
    if key in _CHOICES:
        return _CHOICES[key](text)
    if key in _SWITCHES:
        return units.parse_flag(text)
    if key in _MAY_BE_OFF and text == OFF:
        return None
    if key in _NAMES:
        return _parse_name(key, text)
    if key in _LEVELS:
        return min(max(int(text), _MIN_LEVEL), _MAX_LEVEL)
    # A journal may say anything; a file of more than this could not be offloaded.
    return min(int(text), MAX_OBJECT_BYTES) if key in BOUNDED_SIZES else int(text)


def check_stored(settings: Mapping[str, str]) -> None:
    """Raise InvalidRequest or ValueError for stored policies that this tierfs does not know."""
    for key, text in settings.items():
        from_stored(key, text)


def check_key(key: str) -> None:
    """Raise InvalidRequest for a key that does not exist."""
    if key not in KEYS:
        import difflib

        close = difflib.get_close_matches(key, KEYS, 1)
        remedy = f"did you mean {close[0]}?" if close else f"known policies: {', '.join(KEYS)}"
        raise InvalidRequest(f"unknown policy {key!r}", remedy=remedy)


def allowed(key: str) -> str:
    """Describe the values that a key takes."""
    if key in _CHOICES:
        return f"one of {', '.join(_CHOICES[key])}"
    if key in _SWITCHES:
        return units.FLAGS
    if key in _LEVELS:
        return f"a whole number from {_MIN_LEVEL} to {_MAX_LEVEL}"
    if key == _CLASS_KEY:
        return f"a storage class of the S3 server, like GLACIER_IR or DEEP_ARCHIVE, {IN_PLACE} or {OFF}"
    if key in _NAMES:
        return f"the name of an installed {key}, or {OFF}"
    or_off = f", or {OFF}" if key in (*_MAY_BE_OFF, *_OFF_IS_ZERO) else ""
    if key.endswith(_SIZE_SUFFIX):
        up_to = f" and at most {format(key, MAX_OBJECT_BYTES)}" if key in BOUNDED_SIZES else ""
        least = "" if key in _MAY_BE_EMPTY else " of at least one byte"
        return f"a size{least}{up_to}: {units.SIZES}{or_off}"
    if key.endswith(_COUNT_SUFFIX):
        return f"a whole number of at least 1{or_off}"
    return f"a time of whole seconds, up to a hundred years: {units.DURATIONS}{or_off}"


def attribute(key: str) -> str:
    """Return the name of a key's attribute in a Policy: times have their unit."""
    return _TIMES.get(key) or _OPTIONAL.get(key) or key


def value_of(settings: Policy, key: str) -> Value:
    """Return the value of a key in a policy."""
    value = getattr(settings, attribute(key))
    assert value is None or isinstance(value, int | str)
    return value


def format(key: str, value: Value) -> str:
    """Format a value as `parse` reads it back without loss, in the largest unit that divides it."""
    if isinstance(value, ReadPriority | Ack | Compression):
        return value.value
    if value is None:
        return OFF
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return units.format_flag(value)
    if key.endswith(_COUNT_SUFFIX) or key in _LEVELS:
        return str(value)
    return units.format_size(value) if key.endswith(_SIZE_SUFFIX) else units.format_duration(value)


def _parse_size(text: str, most_bytes: int, *, may_be_empty: bool) -> int:
    size = units.parse_size(text)
    if size > most_bytes:
        raise ValueError(f"{text!r} is too large")
    if size < 1 and not may_be_empty:
        raise ValueError(f"{text!r} is less than one byte")
    return size


def _parse_name(key: str, text: str) -> str:
    form = _CLASS if key == _CLASS_KEY else _NAME
    if not form.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid name")
    return IN_PLACE if key == _CLASS_KEY and text.lower() == IN_PLACE else text


def _parse_level(text: str) -> int:
    level = units.decimal(text.strip(), _MAX_LEVEL)
    if level is None or level < _MIN_LEVEL:
        raise ValueError(f"{text!r} is not a level")
    return level


def _parse_count(text: str) -> int:
    count = units.decimal(text.strip(), _MAX_COUNT)
    if not count:
        raise ValueError(f"{text!r} is not a number of entries")
    return count


def _parse_time(text: str, *, at_least_s: int) -> int:
    seconds = units.parse_duration(text)
    if seconds < at_least_s:
        raise ValueError(f"{text!r} is shorter than {at_least_s} s")
    if seconds > units.MAX_S or seconds != int(seconds):
        raise ValueError(f"{text!r} is too long, or not of whole seconds")
    return int(seconds)

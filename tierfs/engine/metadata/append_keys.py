"""Table `appendkeys`: appends that their clients may send again, each under a key that the client chose.

A row is written in the transaction that makes the append, so that there is never one without the other. It is found by
the directory and the name of the stream besides the key: a stream goes on in segments of other ids. The bounds are of
all segments together, and the oldest rows go first. The rows are in no journal: a store that is recovered from its
bucket, and a replica, know none.
"""

from __future__ import annotations

import hashlib
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, DirectoryId, EntryKind, SegmentId
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.append_key_record import AppendKeyRecord
from tierfs.engine.metadata.tables import APPEND_KEYS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# A client tries again within minutes; one that was cut off over a night still finds its append.
KEPT_MS = 24 * 3600 * 1000

# Some 20 MB of the metadata. 1,000 appends a second with a key each are remembered for 100 s.
MOST_KEYS = 100_000

_BY_KEY, _BY_TIME = b"k", b"t"
_HASH_BYTES = 16

# Old rows that an append removes: more than it adds, so that a bound that was lowered is reached.
_TRIMMED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class AppendKey:
    """A client's key, and the append that it names."""

    text: str
    crc32c: int
    """Of the bytes to append."""
    length: int
    seal: bool
    expected_offset: int | None = None

    def names(self, made: AppendKeyRecord) -> bool:
        """Return whether an append that was made under this key is the same one."""
        same = (made.range.length_bytes, made.crc32c, made.seal) == (self.length, self.crc32c, self.seal)
        return same and self.expected_offset in (None, made.start)


def find(txn: ReadTransaction, name: str, text: str) -> AppendKeyRecord | None:
    """Return the append that was made under a key to the segment, or stream, of this name; None: it was not made.

    Nor is there one whose segment was removed since: its bytes went with it.
    """
    above, _, last = name.rpartition("/")
    parent = directories.find(txn, above)
    if parent is None or parent.kind is not EntryKind.DIRECTORY:
        return None
    entry = directories.lookup(txn, DirectoryId(parent.id), last)
    segment = None if entry is None else directories.segment(txn, SegmentId(entry.id))
    stream = last if segment is None else segment.stream
    made = txn.get(APPEND_KEYS, _BY_KEY + _hash(parent.id, stream, text))
    if made is None:
        return None
    held = directories.living_segment(txn, made.segment_id)
    return made if held is not None and (held.parent_id, held.stream) == (parent.id, stream) else None


def note(
    txn: WriteTransaction, parent_id: int, stream: str, key: AppendKey, segment_id: SegmentId, added: ByteRange
) -> None:
    """Write the row of an append, in its transaction, and drop old ones."""
    hashed = _hash(parent_id, stream, key.text)
    row_key = _BY_KEY + hashed
    before = txn.get(APPEND_KEYS, row_key)
    if before is not None:  # of a segment that was removed
        txn.delete(APPEND_KEYS.name, _time_key(before.committed_ms, hashed))
    record = AppendKeyRecord(
        segment_id=segment_id,
        start=added.start,
        end=added.end,
        crc32c=key.crc32c,
        seal=key.seal,
        committed_ms=txn.now_ms,
    )
    txn.put(APPEND_KEYS, row_key, record)
    txn.put_raw(APPEND_KEYS.name, _time_key(txn.now_ms, hashed), b"")
    _trim(txn)


def _trim(txn: WriteTransaction) -> None:
    """Drop a few of the rows that are too old, or too many."""
    over = txn.count(APPEND_KEYS.name) // 2 - MOST_KEYS
    oldest = list(islice(txn.scan_raw(APPEND_KEYS.name, _BY_TIME, prefix=_BY_TIME), _TRIMMED_AT_ONCE))
    for at, (key, _) in enumerate(oldest):
        if at >= over and txn.now_ms - tables.read_u64(key[len(_BY_TIME) :]) < KEPT_MS:
            return
        txn.delete(APPEND_KEYS.name, key)
        txn.delete(APPEND_KEYS.name, _BY_KEY + key[-_HASH_BYTES:])


def _time_key(committed_ms: int, hashed: bytes) -> bytes:
    return _BY_TIME + tables.u64(committed_ms) + hashed


def _hash(parent_id: int, stream: str, text: str) -> bytes:
    # A name has no NUL, so no two of them with their keys are the same bytes.
    return hashlib.sha256(b"%d %b\0%b" % (parent_id, stream.encode(), text.encode())).digest()[:_HASH_BYTES]

"""Names of the objects that a store makes in its location: the one form of each kind, and whether a name has one.

A name in a record, a dump, a journal or an index was chosen by whoever wrote that. An object is deleted, or written,
by such a name only if it has a form that tierfs makes: a location may hold objects of others.
"""

from __future__ import annotations

import re

from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest

# Limit of an S3 key.
MAX_BYTES = 1024

# End of the names of compressed objects: the program `zstd -d` expects it.
COMPRESSED = ".zst"

# A range of one segment. A number too large for a key's 64 bits makes it no name of ours.
CHUNK = re.compile(
    r"segments/(?P<path>.+)/(?P<segment>[0-9]{1,19})/chunk-(?P<start>0[0-9]{19})-(?P<end>0[0-9]{19})"
    r"-e(?P<epoch>[0-9]{1,19})-(?P<attempt>[0-9a-f]+)(?:-c(?P<crc>[0-9a-f]{8})(?P<zstd>\.zst)?)?",
    re.DOTALL,
)

# Chunks of many segments.
PACK = re.compile(
    r"packs/(?P<object>0[0-9]{19})-e(?P<epoch>[0-9]{1,19})-(?P<attempt>[0-9a-f]+)-c(?P<crc>[0-9a-f]{8})(?P<zstd>\.zst)?"
)

# One part of what a distributed write says of itself.
MANIFEST = re.compile(r"uploads/(?P<job>[0-9a-f]{32})/manifest-(?P<attempt>[0-9a-f]{32})-(?P<part>[0-9]{6})")

# Proof that the journal names the commit of a distributed write.
MARKER = re.compile(
    r"(?P<prefix>uploads/(?P<job>[0-9a-f]{32})/)committed-(?P<application>[0-9a-f]{64})-(?P<version>[0-9]{20})"
    r"-e(?P<epoch>[0-9]{1,20})"
)

# A range of a segment that a distributed write makes.
_UPLOAD = re.compile(
    r"uploads/[0-9a-f]{32}/[0-9]{8,}-[0-9a-f]{32}-0[0-9]{19}-0[0-9]{19}-e[0-9]{1,19}-c[0-9a-f]{8}(?:\.zst)?"
)

# All objects of a distributed write.
_JOB = re.compile(r"uploads/[0-9a-f]{32}/")

# Our copy of the positions of a ledger's entries.
_ENTRIES = re.compile(r"ledgers/entries-[0-9]{1,19}-e[0-9]{1,19}-[0-9a-f]{32}")

_PLAIN = (PACK, MANIFEST, MARKER, _UPLOAD, _ENTRIES)


def is_ours(name: str) -> bool:
    """Return whether a store gives such a name to an object; Pulsar gives the same names to those of ledgers."""
    if len(name.encode(errors="surrogatepass")) > MAX_BYTES:
        return False
    if any(form.fullmatch(name) for form in _PLAIN):
        return True
    chunk = CHUNK.fullmatch(name)
    if chunk is not None:
        return _is_segment(chunk["path"])
    key = names.ledger_key(name)
    return key is not None and key.ledger_id is not None


def is_manifest(name: str) -> bool:
    """Return whether an object's name is that of a part of a distributed write's manifest."""
    return MANIFEST.fullmatch(name) is not None


def is_about_job(name: str) -> bool:
    """Return whether an object below `uploads/` describes its job, and contains no bytes of segments."""
    return is_manifest(name) or MARKER.fullmatch(name) is not None


def attempt_of(name: str) -> str:
    """Return the attempt of a manifest's part, which identifies the manifest; empty for other names."""
    match = MANIFEST.fullmatch(name)
    return match["attempt"] if match is not None else ""


def holds_bytes(name: str) -> bool:
    """Return whether an object of this name holds bytes of segments, not what describes them."""
    if CHUNK.fullmatch(name) or PACK.fullmatch(name) or _UPLOAD.fullmatch(name):
        return True
    key = names.ledger_key(name)
    return key is not None and not key.is_index


def require_ours(name: str) -> None:
    """Raise DataLoss for a name that a store does not give to an object, before anything is done by it."""
    if not is_ours(name):
        raise DataLoss(
            f"the metadata lists an object {names.printable(name)}, which is not a tierfs name; it is not touched",
            remedy="run: tierfs check",
        )


def is_job(name: str) -> bool:
    """Return whether a name stands for all objects of a distributed write."""
    return _JOB.fullmatch(name) is not None


def _is_segment(path: str) -> bool:
    try:
        return names.join(names.split(path)) == path
    except InvalidRequest:
        return False

"""An offset as a table keeps it, in a property of its commit: JSON, packed if many segments are open. Pure.

An offset has a position for each open segment. Measured: 8,500 of them are 149 KB of JSON, and 87 KB packed; sealed
segments take nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib

from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.reader.stream_plan import StreamOffset

# Up to here people can read it: a hundred open segments.
_PLAIN_BYTES = 4096
_PACKED = "zlib:"


def packed(offset: StreamOffset) -> str:
    """Return an offset as text."""
    text = json.dumps(offset.as_json(), separators=(",", ":"))
    if len(text) <= _PLAIN_BYTES:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode(), zlib.Z_BEST_COMPRESSION)).decode()


def unpacked(text: str) -> StreamOffset:
    """Return the offset of a text. Raises InvalidRequest for one that this tierfs cannot read."""
    try:
        if text.startswith(_PACKED):
            text = zlib.decompress(base64.b64decode(text.removeprefix(_PACKED))).decode()
        saved = json.loads(text)
    except (binascii.Error, zlib.error, ValueError) as exc:
        raise InvalidRequest("the table has no offset that tierfs can read", remedy="write another table") from exc
    return StreamOffset.of(saved)

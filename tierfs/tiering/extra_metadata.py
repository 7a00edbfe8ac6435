"""Extra metadata: pairs that a caller adds to the objects of one offload, for people who inspect the bucket (PIP-17).

tierfs never reads them. They are those of the offload that made an object: objects that replace it later (joined,
compressed or repacked ones) do not have them, and `move` copies them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.ledger import keys

Extra: TypeAlias = Mapping[str, str]

NO_EXTRA: Extra = {}

# Next to the longest name of a segment, which takes 1,068 bytes, all metadata stay below the 2 KiB of S3.
MAX_EXTRA_BYTES = 512

# Keys of objects.object_metadata, and those of ledgers. A key of tierfs that is added later starts with `tierfs`.
_RESERVED = frozenset(["format", "store", "segment", "name", "start", "end", "epoch", "attempt", "crc32c"]) | {
    keys.MANAGED_LEDGER_KEY,
    keys.CLUSTER_KEY,
}
_OURS = "tierfs"


def checked(given: Mapping[str, str]) -> dict[str, str]:
    """Return extra metadata as objects store them; see keys.extra_metadata. Idempotent.

    Raises InvalidRequest for a key of tierfs or Pulsar, two keys that become one, and more than 512 bytes.
    """
    extra = keys.extra_metadata(given)
    reserved = next((key for key in extra if key in _RESERVED or key.startswith(_OURS)), None)
    if reserved is not None:
        raise InvalidRequest(
            f"metadata key {printable(reserved)!r} is reserved for Pulsar and tierfs", remedy="choose another key"
        )
    used = sum(len(key) + len(value) for key, value in extra.items())
    if used > MAX_EXTRA_BYTES:
        raise InvalidRequest(
            f"the extra metadata have {used} bytes, but at most {MAX_EXTRA_BYTES} fit into an object's headers",
            remedy="use shorter keys and values; characters that are not ASCII take three bytes for each byte",
        )
    return extra


def encoded(given: Mapping[str, str]) -> str:
    """Return extra metadata as one option of a request to the holder. Raises as `checked`."""
    return json.dumps(checked(given))


def decoded(text: str) -> dict[str, str]:
    """Return the extra metadata in a JSON object of texts. Raises InvalidRequest for another text, and as `checked`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest("the extra metadata are not JSON") from exc
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest('the extra metadata are not a JSON object of texts, like {"team": "search"}')
    return checked(given)

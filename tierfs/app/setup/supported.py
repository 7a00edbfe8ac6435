"""Settings that only some places support: a store refuses them before it uses such a place, or when they are set."""

from __future__ import annotations

from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.place import is_in_s3
from tierfs.engine.metadata.records import LocationRecord

# What a request adds to new objects (s3/additions.py). Requester pays is missing: adopted objects may need it.
_OF_S3 = ("storage_class", "encryption", "kms_key", "tags")


def require_settings(place: LocationRecord, settings: ColdSettings) -> None:
    """Raise InvalidRequest for settings of new objects that a place would ignore."""
    usual = ColdSettings()
    asked = [key for key in _OF_S3 if getattr(settings, key) != getattr(usual, key)]
    if asked and not is_in_s3(place.url):
        raise InvalidRequest(
            f"{printable(place.url)} does not support {', '.join(f'cold.{key}' for key in asked)}: only S3 does",
            remedy=f"remove {'it' if len(asked) == 1 else 'them'} first: tierfs config "
            + " ".join(f"cold.{key}=" for key in asked),
        )

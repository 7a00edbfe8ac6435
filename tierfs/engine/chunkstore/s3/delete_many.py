"""Many objects removed with one request: DeleteObjects of S3's API, where the server has it and says what it did."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tierfs.base.words.errors import InvalidRequest, NotFound, TierfsError, Unavailable
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.errors import error_of_answer, map_s3_errors

log = logging.getLogger(__name__)


def delete_many(connection: S3Connection, names: Sequence[str]) -> bool:
    """See ManyDeletes.delete_many. False also for a server that does not confirm each of the names."""
    location = connection.location
    keys = {location.key(name): name for name in names}
    try:
        with map_s3_errors(location, "delete", names[0]):
            answer = connection.client.delete_objects(
                Bucket=location.bucket, Delete={"Objects": [{"Key": key} for key in keys]}
            )
            # Not the quiet form: servers that only pretend to know the request would pass for others.
            gone = {str(item["Key"]) for item in answer.get("Deleted", ())}
            codes = {str(item["Key"]): str(item.get("Code", "")) for item in answer.get("Errors", ())}
    except InvalidRequest as exc:  # if it is the endpoint or the bucket that is wrong, single deletions report it
        log.debug("%s: objects are deleted one by one: %s", location.endpoint, exc)
        return False
    errors = [error_of_answer(location, "delete", keys[key], code, 0) for key, code in codes.items() if key in keys]
    refused = [error for error in errors if not isinstance(error, NotFound)]
    if refused:
        raise _first_to_repeat(refused)
    return keys.keys() <= gone | codes.keys()


def _first_to_repeat(errors: Sequence[TierfsError]) -> TierfsError:
    """Return the first error that may pass, or the first of all."""
    return next((error for error in errors if isinstance(error, Unavailable)), errors[0])

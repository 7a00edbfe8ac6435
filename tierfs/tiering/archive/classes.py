"""The storage class that a command or a program moves objects to."""

from __future__ import annotations

from tierfs.base.options import policy
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.transaction import ReadTransaction


def chosen(txn: ReadTransaction, path: str, storage_class: str | None, *, back: bool = False) -> str:
    """Return the class to which objects below `path` move; "": that of new objects.

    Raises NotFound, and InvalidRequest for a name that is no class, for none without the policy archive_class, for both
    a class and `back`, and for `back` where policy would move the objects to the archive again.
    """
    if back and storage_class is not None:
        raise InvalidRequest("--class and --back are mutually exclusive", remedy="use only one of them")
    if storage_class is not None:
        return policy.parse("archive_class", storage_class)
    values, shown = policies.at(txn, path).values, printable(path) or "/"
    if back:
        if values.archive_after_s is not None and values.archive_class is not None:
            raise InvalidRequest(
                f"the policy archive_after of {shown} would move the objects to the archive again",
                remedy=f"first run: tierfs config {shown} archive_after=off",
            )
        return ""
    if values.archive_class is None:
        raise InvalidRequest(f"{shown} has no policy archive_class", remedy="name a storage class: --class CLASS")
    return values.archive_class

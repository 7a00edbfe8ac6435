"""The answers of a cloud's server to many deletions in one request."""

from __future__ import annotations

from collections.abc import Sequence

from tierfs.base.words.errors import PermissionDenied, Unavailable
from tierfs.base.words.names import printable

# Each HTTP status of an answer by which the object is gone, or was not there; and by which its key may not delete it.
_GONE = frozenset({200, 202, 204, 404})
_REFUSED = frozenset({401, 403})

# That of a whole batch that was not understood.
_BAD_REQUEST = 400


def are_gone(names: Sequence[str], codes: Sequence[int]) -> bool:
    """Return whether the answers say of each object that it is gone; False where the server knows no such request.

    Raises PermissionDenied, and Unavailable for what may pass.
    """
    # A batch that was not understood has none, or a single one, as at Azurite, which misreads the separator of the SDK.
    if len(codes) < len(names) or list(codes) == [_BAD_REQUEST]:
        return False
    refused = {code for code in codes if code not in _GONE}
    if refused - _REFUSED:
        raise Unavailable(f"{printable(names[0])}: it, or one of the next, was not deleted: {max(refused)}")
    if refused:
        raise PermissionDenied(f"{printable(names[0])}: it, or one of the next, may not be deleted")
    return True

"""Storage classes that a policy names as the archive: which of them restore an object before it can be read.

They are those of S3, and `place`: the store's archive place.
"""

from __future__ import annotations

# S3's User Guide, "Understanding S3 Glacier storage classes". A server of another kind may have a class of one of these
# names that answers at once: it is treated with the same care, and reads ask the server in every case.
_RESTORED_FIRST = frozenset({"GLACIER", "DEEP_ARCHIVE"})

# The class of an object for which S3 names none.
USUAL_CLASS = "STANDARD"


def is_restored_first(storage_class: str) -> bool:
    """Return whether an object of this class can be read only after it was restored."""
    return storage_class in _RESTORED_FIRST

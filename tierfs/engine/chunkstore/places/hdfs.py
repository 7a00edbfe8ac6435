"""Shared by both ways to HDFS, `webhdfs` and `native_hdfs`: names that it takes, and its exceptions by their meaning.

Both ways write the same files, so that a place may be reached by either.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.base.words.errors import InvalidRequest, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.base.words.names import printable

RENAMES = "a rename that refuses an existing name"
CHECKED = "HDFS sums each block on its way between data nodes and at rest"

# DFSUtilClient.isValidName of Hadoop refuses a colon in a name.
_ENCODED = str.maketrans({"%": "%25", ":": "%3A"})

# Exceptions of the name node by their meaning. Others may pass: safe mode, a standby, a lease, a lost data node.
_MEANINGS: Mapping[str, type[Exception]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AlreadyBeingCreatedException": FileExistsError,  # another writer has not closed it yet
    "ParentNotDirectoryException": NotADirectoryError,
    "AccessControlException": PermissionDenied,
    "SecurityException": PermissionDenied,
    "AuthenticationException": PermissionDenied,
    "QuotaExceededException": StorageFull,
    "DSQuotaExceededException": StorageFull,
    "NSQuotaExceededException": StorageFull,
    "InvalidPathException": InvalidRequest,
    "IllegalArgumentException": InvalidRequest,
    "HadoopIllegalArgumentException": InvalidRequest,
    "SnapshotException": InvalidRequest,
    "UnsupportedOperationException": InvalidRequest,
}


def encode(name: str) -> str:
    """Return a name that HDFS takes."""
    return name.translate(_ENCODED)


def decode(name: str) -> str:
    """Return the name that `encode` made one of HDFS of."""
    return name.replace("%3A", ":").replace("%25", "%")


def meant(kind: str, text: str, path: str) -> Exception:
    """Return the error for an exception of the name node."""
    error = _MEANINGS.get(kind, Unavailable)
    return error(f"{printable(path)}: {kind}: {text}" if issubclass(error, TierfsError) else path)

"""The places by the scheme of their URL, and the connection to one."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import extras
from tierfs.base.words.errors import InvalidRequest, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.units import decimal
from tierfs.engine.chunkstore.validate import is_relative

if TYPE_CHECKING:
    from tierfs.base.options.config import ColdSettings
    from tierfs.engine.chunkstore.places.place import ObjectPlace
    from tierfs.engine.chunkstore.places.storage import PlaceStorage
    from tierfs.engine.chunkstore.protocol import Abilities

_WEBHDFS_PORT = 9870
_LAST_PORT = 65535
_HOST = re.compile(r"[A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Address:
    """A URL in its parts."""

    scheme: str
    host: str
    """Host, bucket or container; "" for none."""
    port: int | None
    user: str
    path: str
    """Below the host: "" or an absolute path without a slash at its end."""
    endpoint_url: str = ""

    @property
    def url(self) -> str:
        """The URL, in the one form in which it is recorded."""
        at = f"{quote(self.user, safe='')}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{at}{self.host}{port}{self.path}"

    @property
    def in_files(self) -> bool:
        """Whether the objects are files, without metadata of their own."""
        return SCHEMES[self.scheme].in_files


def parse(url: str, endpoint_url: str = "") -> Address:
    """Return the parts of a URL; its path is taken as it is written. Raises InvalidRequest for any that is no place."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise unknown_kind(url)
    require_no_secret(url)
    kind, shown = SCHEMES[scheme], without_secret(url)
    server, _, path = rest.partition("/")
    user, at, host = server.rpartition("@")
    name, colon, digits = host.partition(":")
    unasked = (at and "@" not in kind.form) or (colon and ":" not in kind.form)
    if bool(name) == kind.form.startswith("/") or unasked or not _HOST.fullmatch(name):
        raise InvalidRequest(f"{shown} is not a place", remedy=f"write {scheme}://{kind.form}; see docs/places.md")
    port = decimal(digits, _LAST_PORT) if colon else None
    if colon and not port:
        raise InvalidRequest(f"{shown}: {printable(digits)} is not a port")
    root = path.strip("/")
    if root and not is_relative(root):
        raise InvalidRequest(
            f"{shown}: a part of its path is empty or consists of dots", remedy="write the path without it"
        )
    if endpoint_url and not kind.takes_endpoint:
        raise InvalidRequest(f"{scheme}:// takes no endpoint URL: the URL itself contains its server")
    return Address(scheme, name, port, unquote(user) if at else "", f"/{root}".rstrip("/"), endpoint_url)


def unknown_kind(url: str) -> InvalidRequest:
    """Return the error for a URL that neither tierfs nor an installed package serves."""
    known = " ".join(f"{name}://" for name in SCHEMES)
    return InvalidRequest(
        f"{without_secret(url)}: unknown kind of cold tier",
        remedy=f"use a directory, or one of: s3:// {known}; a package may add others: docs/python.md",
    )


def require_no_secret(url: str) -> None:
    """Raise InvalidRequest for a URL with a password, or a query, as a shared signature is: it would be recorded."""
    if without_secret(url) != printable(url):
        raise InvalidRequest(
            f"{without_secret(url)}: its password or query would be recorded",
            remedy="write it without a password and without a query; docs/places.md says where those belong",
        )


def without_secret(url: str) -> str:
    """Return a URL as a message may show it: without a password and without a query."""
    scheme, separator, rest = url.partition("?")[0].partition("://")
    server, slash, path = rest.partition("/")
    user, at, host = server.rpartition("@")
    return printable(f"{scheme}{separator}{user.partition(':')[0]}{at}{host}{slash}{path}")


def is_known(url: str) -> bool:
    """Return whether a URL has the scheme of one of these places."""
    return url.partition("://")[0] in SCHEMES


def in_files(url: str) -> bool:
    """Return whether the objects of a URL are files, without metadata of their own."""
    scheme = SCHEMES.get(url.partition("://")[0])
    return scheme is not None and scheme.in_files


def connect_place(url: str, endpoint_url: str, settings: ColdSettings, abilities: Abilities) -> PlaceStorage:
    """Return the storage of a place. Raises InvalidRequest for an invalid URL or a missing package."""
    from tierfs.engine.chunkstore.places.place_errors import told
    from tierfs.engine.chunkstore.places.storage import PlaceStorage

    address = parse(url, endpoint_url)
    scheme = SCHEMES[address.scheme]
    try:
        with extras.needed_by(f"{address.scheme}://", scheme.extra):
            place = scheme.open(address, settings)
    except TierfsError:
        raise
    except Exception as exc:  # its client reads the user's configuration of it: anything may be raised
        raise InvalidRequest(
            f"{without_secret(url)}: its client failed to start: {told(exc)}",
            remedy="docs/places.md lists its credentials",
        ) from exc
    return PlaceStorage(place, url, abilities)


def _memory(address: Address, settings: ColdSettings) -> ObjectPlace:
    from tierfs.engine.chunkstore.places.file_place import FilePlace
    from tierfs.engine.chunkstore.places.filesystem import MemoryFiles

    return FilePlace(MemoryFiles(), f"/{address.host}{address.path}")


def _local(address: Address, settings: ColdSettings) -> ObjectPlace:
    from tierfs.engine.chunkstore.places.file_place import FilePlace
    from tierfs.engine.chunkstore.places.filesystem import LocalFiles

    return FilePlace(LocalFiles(), address.path)


def _webhdfs(address: Address, settings: ColdSettings) -> ObjectPlace:
    from fsspec.config import conf

    from tierfs.engine.chunkstore.places import hdfs
    from tierfs.engine.chunkstore.places.file_place import FilePlace
    from tierfs.engine.chunkstore.places.webhdfs import WebHdfsFiles

    configured = conf.get("webhdfs", {})
    # A name is proof enough for a cluster without Kerberos; HADOOP_USER_NAME is Hadoop's own way to give another.
    who = address.user or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    user = None if configured.keys() & {"user", "kerberos", "token"} else who
    port = address.port or _WEBHDFS_PORT
    files = WebHdfsFiles(address.host, port, user, tls=address.scheme == "swebhdfs", settings=settings)
    return FilePlace(files, address.path, hdfs.encode, hdfs.decode, has_joined=True)


def _hdfs(address: Address, settings: ColdSettings) -> ObjectPlace:
    from tierfs.engine.chunkstore.places import hdfs
    from tierfs.engine.chunkstore.places.file_place import FilePlace
    from tierfs.engine.chunkstore.places.native_hdfs import NativeHdfsFiles

    files = NativeHdfsFiles(address.host, address.port, settings)
    return FilePlace(files, address.path, hdfs.encode, hdfs.decode, has_joined=True)


def _gcs(address: Address, settings: ColdSettings) -> ObjectPlace:
    from tierfs.engine.chunkstore.places.gcs import GcsPlace

    return GcsPlace(address.host, address.path, address.endpoint_url, settings)


def _azure(address: Address, settings: ColdSettings) -> ObjectPlace:
    from tierfs.engine.chunkstore.places.azure import AzurePlace

    # abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, or abfs://CONTAINER/PATH of the account that is configured.
    account = address.host.partition(".")[0] if address.user else ""
    return AzurePlace(account, address.user or address.host, address.path, settings)


def _sftp(address: Address, settings: ColdSettings) -> ObjectPlace:
    from tierfs.engine.chunkstore.places.file_place import FilePlace
    from tierfs.engine.chunkstore.places.sftp import SftpFiles
    from tierfs.engine.chunkstore.places.ssh import SshSessions

    return FilePlace(SftpFiles(SshSessions(address.host, address.port, address.user, settings)), address.path)


@dataclass(frozen=True, slots=True)
class Scheme:
    """One kind of place."""

    open: Callable[[Address, ColdSettings], ObjectPlace]
    form: str
    """Its URL after the two slashes, for people; without an @ or a colon it takes no user or no port."""
    extra: str
    """The extra of this package that brings what it needs."""
    in_files: bool = True
    """Its objects are files, without metadata of their own."""
    takes_endpoint: bool = False
    """Its server may be another than the usual one."""


SCHEMES: Mapping[str, Scheme] = {
    "webhdfs": Scheme(_webhdfs, "[USER@]HOST[:PORT]/PATH", "hdfs"),
    "swebhdfs": Scheme(_webhdfs, "[USER@]HOST[:PORT]/PATH", "hdfs"),
    "hdfs": Scheme(_hdfs, "HOST[:PORT]/PATH", "hdfs"),
    "gs": Scheme(_gcs, "BUCKET/PREFIX", "gcs", in_files=False, takes_endpoint=True),
    "abfs": Scheme(_azure, "CONTAINER@ACCOUNT.dfs.core.windows.net/PATH", "azure", in_files=False),
    "sftp": Scheme(_sftp, "[USER@]HOST[:PORT]/PATH", "sftp"),
    "memory": Scheme(_memory, "NAME/PATH", "fsspec"),
    "local": Scheme(_local, "/DIR", "fsspec"),
}

"""The links on which reading is measured: as near as loopback, and as far as users' S3 is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks.reading.figures import FAR, FARTHER, HTTPS, LOOPBACK
from tests.benchmarks.relay.loop import Slowness
from tests.benchmarks.relay.process import RelayServer
from tests.servers.endpoint import S3Endpoint
from tests.servers.rgw import RgwServer
from tierfs.app import store as app
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import LOCATIONS

_NEAR_THREADS = 8
"""GETs in flight that boto3 reads fastest with over loopback (measured)."""

_FAR_THREADS = 32
"""The number of connections that far links are compared by; more gained nothing for these rates on two cores."""

TRUST = ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
"""Variables that name the certificates to trust: for boto3, tierfs and mount-s3; for programs in Go; for s3fs."""


@dataclass(frozen=True)
class Link:
    """A way to the server."""

    name: str
    title: str
    method: str
    raw_threads: int = _NEAR_THREADS
    tls: bool = False
    slowness: Slowness | None = None

    @property
    def near(self) -> bool:
        """Whether nothing but loopback lies in between, so that only a count needs the relay."""
        return self.slowness is None


LINKS: tuple[Link, ...] = (
    Link(LOOPBACK, "loopback", "Plain HTTP to a server on the same machine."),
    Link(HTTPS, "HTTPS", "The same server's own HTTPS (TLS 1.3), its certificate verified.", tls=True),
    Link(
        FAR,
        "15 ms, 90 MB/s",
        "Plain HTTP through a relay: each answer begins 15 ms later, a connection gives at most 90 MB/s.",
        _FAR_THREADS,
        slowness=Slowness(0.015, 90e6),
    ),
    Link(
        FARTHER,
        "40 ms, 40 MB/s, HTTPS",
        "The server's own HTTPS through a relay: each answer, those of handshakes too, begins 40 ms later, and a "
        "connection gives at most 40 MB/s.",
        _FAR_THREADS,
        tls=True,
        slowness=Slowness(0.040, 40e6),
    ),
)

BY_NAME = {link.name: link for link in LINKS}


@contextmanager
def reached(link: Link, server: RgwServer) -> Iterator[tuple[S3Endpoint, RelayServer]]:
    """For a while, the server as the link shows it, and a relay on the same link that counts.

    All programs started meanwhile trust the server's certificate.
    """
    direct = server.tls_endpoint if link.tls else server.endpoint
    with trusted(direct.authority), RelayServer(direct.endpoint_url, link.slowness) as relay:
        yield direct if link.near else replace(direct, endpoint_url=relay.endpoint_url), relay


@contextmanager
def trusted(authority: Path | None) -> Iterator[None]:
    """For a while, this process and those it starts believe only this authority; without one, what they always do.

    AWS_CA_BUNDLE is not set without one: rclone refuses plain HTTP with it.
    """
    before = {name: os.environ.pop(name, None) for name in TRUST}
    if authority is not None:
        os.environ.update(dict.fromkeys(TRUST, str(authority)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def redirected(store: Path, endpoint_url: str) -> Iterator[None]:
    """For a while, whoever opens the store finds its cold tier at another address."""
    original = _point_at(store, endpoint_url)
    try:
        yield
    finally:
        _point_at(store, original)


def _point_at(path: Path, endpoint_url: str) -> str:
    """Change the address; returns the one before."""
    with app.open_store(path) as store, store.metadata.write() as txn:
        assert store.cold_location_id is not None
        key = tables.u32(store.cold_location_id)
        location = txn.get(LOCATIONS, key)
        assert location is not None
        txn.put(LOCATIONS, key, replace(location, endpoint_url=endpoint_url))
        return location.endpoint_url

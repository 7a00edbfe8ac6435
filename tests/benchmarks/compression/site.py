"""What the questions about reading share: a server with the same files in all stores, plain, and in JuiceFS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.benchmarks.compression.material import (
    AUTO,
    BEFORE,
    OFF,
    ZSTD,
    Made,
    TextFile,
    make_cold,
    make_store,
    upload,
    write_text,
)
from tests.benchmarks.compression.texts import LOGS, RANDOM
from tests.benchmarks.measuring import GIB
from tests.benchmarks.mounts import MountCommand
from tests.benchmarks.reading import machine
from tests.benchmarks.reading.corpus import WARM_FILE, File
from tests.benchmarks.reading.figures import Sample
from tests.benchmarks.reading.links import Link, reached, redirected
from tests.benchmarks.reading.peers import Peer, Site
from tests.benchmarks.reading.stage import say
from tests.benchmarks.reading.subjects import Bench, Subject, TierfsSubjects
from tests.benchmarks.relay.process import RelayServer
from tests.servers.certificates import Authority
from tests.servers.endpoint import S3Endpoint
from tests.servers.rgw import RgwServer

TIERFS = {name: f"tierfs, {name}" for name in (OFF, ZSTD, AUTO, BEFORE)}
"""Subjects by policy."""

STORED = "stored/plain"

_MOST_HOT_BYTES = 6 * GIB
_HOT_SHARE = 6
_SERVER_SHARE = 2
"""Memory the server takes per byte that it stores, as the reading benchmark found."""
_CEPH_MEMORY = "CEPH_MEMORY_BYTES"
_CEPH_SPARE_BYTES = GIB
_COPIES = 5
"""Of a file at most, if nothing compresses: an object, in three stores, and in JuiceFS."""


@dataclass(frozen=True)
class Readers:
    """Everything that is read, as it is reached on one link."""

    link: Link
    endpoint: S3Endpoint
    bucket: str
    relay: RelayServer
    """On the same link, but it counts."""
    files: Sequence[TextFile]
    stores: Mapping[str, Made]
    """By policy."""
    stored: Mapping[str, Mapping[str, float]]
    """Stored bytes per byte of each kind, by policy."""
    peers: Sequence[Peer]
    site: Site
    bench: Bench

    def subjects(self, kind: str) -> list[Subject]:
        """Mounts of the stores that have the file of this kind, `off` first."""
        return [self.mounted(name) for name in self.stores if kind in self.stored[name]]

    def mounted(self, name: str) -> Subject:
        """A mount of the store of a policy."""
        made = self.stores[name]
        subject = TierfsSubjects(self.site.scratch / "tierfs.log").of(TIERFS[name], made.path)
        return subject if name != BEFORE else replace(subject, command=partial(_of_another_version, made, subject))

    def stored_samples(self, kind: str) -> dict[str, Sample]:
        """Return stored bytes per byte of this kind, by subject."""
        return {TIERFS[name]: {STORED: found[kind]} for name, found in self.stored.items() if kind in found}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """For a while, all stores are reached through the relay."""
        with all_redirected(self.stores, replace(self.endpoint, endpoint_url=self.relay.endpoint_url)):
            yield


def hot_bytes(size_bytes: int) -> int:
    """Memory to make hot for reads of a file of this size."""
    return min(_MOST_HOT_BYTES, _HOT_SHARE * size_bytes)


@contextmanager
def served(directory: Path, stored_bytes: int) -> Iterator[RgwServer]:
    """A server with room for so much, by HTTP and HTTPS. Raises TooLittleMemory."""
    machine.require_memory(_SERVER_SHARE * stored_bytes)
    os.environ.setdefault(_CEPH_MEMORY, str(stored_bytes + _CEPH_SPARE_BYTES))
    with RgwServer(directory / "ceph", Authority.create(directory / "authority")) as server:
        yield server


@contextmanager
def built(
    directory: Path, kinds: Sequence[str], size_bytes: int, peers: Sequence[Peer], other: Path | None = None
) -> Iterator[Callable[[Link], AbstractContextManager[Readers]]]:
    """Write all, on a server that runs meanwhile; what is yielded gives the Readers of a link, for a while."""
    say("starting the S3 server and writing what is read")
    files = [write_text(kind, directory, size_bytes) for kind in kinds]
    with served(directory, _COPIES * size_bytes * len(kinds)) as server:
        bucket = server.endpoint.create_bucket()
        before = {BEFORE: files} if other else {}
        of_policy = before | {OFF: files, ZSTD: files, AUTO: [file for file in files if file.kind == RANDOM]}
        stores = {
            name: make_store(directory / name, server.endpoint, bucket, name, other if name == BEFORE else None)
            for name, some in of_policy.items()
            if some
        }
        stored = {name: make_cold(made, of_policy[name]) for name, made in stores.items()}
        for file in files:
            upload(file, server.endpoint, bucket)
        site = Site(server.endpoint_url, bucket, directory / "scratch")
        site.scratch.mkdir()
        logs = [file.path for file in files if file.kind == LOGS]
        for peer in peers if logs else ():
            peer.prepare(site, [_written(WARM_FILE, site.scratch), *logs], directory / "mnt")
        bench = Bench(directory / "mnt", hot_bytes(size_bytes))

        @contextmanager
        def on(link: Link) -> Iterator[Readers]:
            with reached(link, server) as (endpoint, relay), all_redirected(stores, endpoint):
                far = replace(site, endpoint_url=endpoint.endpoint_url)
                yield Readers(link, endpoint, bucket, relay, files, stores, stored, peers, far, bench)

        yield on


@contextmanager
def all_redirected(stores: Mapping[str, Made], endpoint: S3Endpoint) -> Iterator[None]:
    """For a while, all these stores are reached another way."""
    with ExitStack() as stack:
        for made in stores.values():
            stack.enter_context(redirected(made.path, endpoint.endpoint_url))
        yield


def _of_another_version(made: Made, subject: Subject, mountpoint: Path) -> MountCommand:
    """The same module of the other checkout, run in its directory."""
    ours = subject.command(mountpoint)
    python = (str(made.version.python), *ours.arguments[1:])
    return replace(ours, arguments=("env", "-C", str(made.version.checkout), *python))


def _written(file: File, directory: Path) -> Path:
    path = directory / file.name
    path.write_bytes(b"".join(file.blocks()))
    return path

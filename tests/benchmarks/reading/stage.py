"""Everything the chosen questions read, made once; and the questions themselves, on one link after another."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.benchmarks.measuring import GIB
from tests.benchmarks.reading import chunky, corpus, machine, plan
from tests.benchmarks.reading.counted_questions import CountedQuestions
from tests.benchmarks.reading.figures import LOOPBACK
from tests.benchmarks.reading.links import Link, reached, redirected
from tests.benchmarks.reading.local_questions import LocalQuestions
from tests.benchmarks.reading.peers import Peer, Site
from tests.benchmarks.reading.plan import Plan
from tests.benchmarks.reading.random_questions import SMALL_BYTES, RandomQuestions
from tests.benchmarks.reading.s3_questions import S3Bench, SequentialQuestions
from tests.benchmarks.reading.subjects import Bench, Question
from tests.benchmarks.relay.process import RelayServer
from tests.servers.certificates import Authority
from tests.servers.rgw import RgwServer

SEVERAL_READERS = 4
_MOST_HOT_BYTES = 6 * GIB
_HOT_SHARE = 6
"""Memory to make hot, in sizes of a file: for four of them in the page cache, the mount's buffers and the server's."""

_CEPH_MEMORY = "CEPH_MEMORY_BYTES"
_CEPH_SPARE_BYTES = GIB
_COPIES = 3
"""Of every large file: as a segment, as an object, and in JuiceFS."""
_SERVER_SHARE = 2
"""Memory the server takes per byte that it stores: 22 GB for 12 were measured, and ended by the kernel."""

Questions = Mapping[int, Callable[[], Question]]
"""By number; each is made when it is asked."""


def say(what: str) -> None:
    """Tell whoever waits how far the run is."""
    print(what, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Stage:
    """Files, a server that has them, and mounts' place."""

    directory: Path
    local: LocalQuestions
    server: RgwServer | None
    s3: S3Bench | None
    """As the server is reached directly; None, as the server, where no question needs it."""

    @contextmanager
    def questions(self, link: Link) -> Iterator[Questions]:
        """All that can be asked on a link, while it is there."""
        found: dict[int, Callable[[], Question]] = {}
        with ExitStack() as stack:
            if self.server is not None and self.s3 is not None:
                endpoint, relay = stack.enter_context(reached(link, self.server))
                stack.enter_context(redirected(self.s3.corpus.store, endpoint.endpoint_url))
                site = replace(self.s3.site, endpoint_url=endpoint.endpoint_url)
                s3 = replace(self.s3, corpus=replace(self.s3.corpus, endpoint=endpoint), site=site, link=link)
                found = _on_every_link(s3, relay)
                if link.name == LOOPBACK:
                    found |= _on_loopback(s3, relay, self.local, self.directory / "chunky")
            local = {plan.FIRST_LOCAL: self.local.first_read, plan.SECOND_LOCAL: self.local.second_read}
            yield found | local if link.name == LOOPBACK else found


def _on_every_link(s3: S3Bench, relay: RelayServer) -> dict[int, Callable[[], Question]]:
    sequential, blocks, counted = SequentialQuestions(s3), RandomQuestions(s3), CountedQuestions(s3, relay)
    return {
        plan.ONE: sequential.one_reader,
        plan.SEVERAL: sequential.several_readers,
        plan.FIRST_BYTE: blocks.first_byte,
        plan.RANDOM: lambda: blocks.random_blocks([SMALL_BYTES]),
        plan.FETCHED: counted.fetched,
    }


def _on_loopback(s3: S3Bench, relay: RelayServer, local: LocalQuestions, chunky_store: Path) -> Questions:
    """The questions that are asked on loopback only, or in more detail there."""
    return {
        plan.FIRST_BYTE: lambda: RandomQuestions(s3).first_byte(chunky_store),
        plan.RANDOM: RandomQuestions(s3).random_blocks,
        plan.MANY: SequentialQuestions(s3).many_readers,
        plan.CACHE: lambda: CountedQuestions(s3, relay).disk_cache(local),
    }


@contextmanager
def built(chosen: Plan, directory: Path, peers: list[Peer]) -> Iterator[Stage]:
    """Write what the chosen questions read, on a server that runs meanwhile."""
    bench = Bench(directory / "mnt", min(_MOST_HOT_BYTES, _HOT_SHARE * chosen.size_bytes))
    local = LocalQuestions(bench, directory, corpus.large_files(chosen.size_bytes, 1)[0])
    if LOOPBACK in chosen.links and chosen.questions & plan.LOCAL:
        local.build()
    if not chosen.needs_s3:
        yield Stage(directory, local, None, None)
        return
    large = corpus.large_files(chosen.size_bytes, SEVERAL_READERS if chosen.asks(plan.SEVERAL) else 1)
    small = corpus.small_files(chosen.size_bytes, plan.MANY_READERS) if chosen.asks(plan.MANY) else []
    _reserve(large, small)
    say("starting the S3 server and writing what is read")
    with RgwServer(directory / "ceph", Authority.create(directory / "authority")) as server:
        bucket = server.endpoint.create_bucket()
        whole = corpus.Corpus(directory / "s3", bucket, server.endpoint, tuple(large), tuple(small))
        site = Site(server.endpoint_url, bucket, directory / "scratch")
        site.scratch.mkdir()
        corpus.build(whole, peers, site, directory / "mnt")
        if plan.FIRST_BYTE in chosen.on(LOOPBACK) and LOOPBACK in chosen.links:
            chunky.build(directory / "chunky", server.endpoint, bucket)
            corpus.fill_cold(directory / "chunky", [corpus.WARM_FILE])
        yield Stage(directory, local, server, S3Bench(bench, whole, site, tuple(peers)))


def _reserve(large: list[corpus.File], small: list[corpus.File]) -> None:
    """Give the server its memory. Raises TooLittleMemory."""
    stored = _COPIES * sum(file.size_bytes for file in large) + sum(file.size_bytes for file in small)
    machine.require_memory(_SERVER_SHARE * stored)
    os.environ.setdefault(_CEPH_MEMORY, str(stored + _CEPH_SPARE_BYTES))

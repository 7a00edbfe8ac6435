"""The reading benchmark: asks the chosen questions in one run and keeps what it finds as JSON."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measuring import GIB
from tests.benchmarks.reading import chunky, corpus, machine
from tests.benchmarks.reading.counted_questions import CountedQuestions
from tests.benchmarks.reading.figures import DIRECTORY, RESULTS_NAME, Answer, Part, Results, load
from tests.benchmarks.reading.local_questions import LocalQuestions
from tests.benchmarks.reading.peers import ENVIRONMENT, KNOWN, Peer, Site, find_peers
from tests.benchmarks.reading.random_questions import RandomQuestions
from tests.benchmarks.reading.s3_questions import S3Bench, SequentialQuestions
from tests.benchmarks.reading.subjects import Bench, Question
from tests.servers.relay.process import RelayServer
from tests.servers.rgw import RgwServer
from tierfs.types import MIB

QUESTIONS = range(1, 10)

_LOCAL = frozenset({3, 4, 8})
_S3 = frozenset(QUESTIONS) - {3, 4}
_SEVERAL, _FIRST_BYTE, _MANY, _CACHE, _FETCHED = 2, 5, 7, 8, 9
_COMPARED = frozenset({1, 2, 5, 6, 9})
"""Those that peers answer too."""

SEVERAL_READERS = 4
MANY_READERS = 64
_MOST_HOT_BYTES = 6 * GIB
_HOT_SHARE = 6
"""Memory to make hot, in sizes of a file: for four of them in the page cache, the mount's buffers and the server's."""

_CEPH_MEMORY = "CEPH_MEMORY_BYTES"
_CEPH_SPARE_BYTES = GIB
_COPIES = 3
"""Of every large file: as a segment, as an object, and in JuiceFS."""
_SERVER_SHARE = 2
"""Memory the server takes per byte that it stores: 22 GB for 12 were measured, and ended by the kernel."""


@dataclass(frozen=True)
class Plan:
    """What a run is asked to do."""

    questions: frozenset[int]
    repetitions: int
    size_bytes: int
    docs: Path
    """The directory the results go to, and where earlier ones are."""
    keep: Path | None = None
    """A new directory to work in, which stays with the logs of all mounts and of the server."""
    peers: tuple[str, ...] | None = None
    """Only these programs."""


def run(plan: Plan) -> None:
    """Ask all questions in turn; the results on disk grow with every answer.

    A subject that fails is remarked and the run goes on. Raises what keeps the whole from starting.
    """
    _prepare_environment()
    peers, notes = find_peers(plan.peers)
    if not plan.questions & _COMPARED:
        peers = []
    path = plan.docs / DIRECTORY / RESULTS_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    results = load(path) if path.exists() else Results({}, {})
    results.machine, results.notes = machine.machine(), notes if plan.questions & _COMPARED else results.notes
    results.programs |= machine.programs(peers)
    with _directory(plan) as directory, _questions(plan, directory, peers) as questions:
        for number in sorted(questions):
            results.put(ask(questions[number], plan))
            results.save(path)


def ask(question: Question, plan: Plan) -> Answer:
    """All repetitions: in each, every subject of every part in turn, so that all share the conditions."""
    parts = {title: Part(title, table.limit) for title, table in question.parts.items()}
    remarks = [question.left_out] if question.left_out else []
    for repetition in range(plan.repetitions):
        for title, table in question.parts.items():
            for subject, measure in table.runs.items():
                _say(f"question {question.number}, {repetition + 1} of {plan.repetitions}: {title or 'all'}: {subject}")
                try:
                    parts[title].add(subject, measure(repetition))
                except Exception as exc:  # anything a subject does ends its run only, and is reported
                    remarks.append(f"{subject} failed ({title or question.title}): {type(exc).__name__}: {exc}")
                    _say(remarks[-1])
    return Answer(
        question.number,
        question.title,
        question.method,
        plan.size_bytes,
        plan.repetitions,
        tuple(parts.values()),
        list(dict.fromkeys(remarks)),
    )


@contextmanager
def _directory(plan: Plan) -> Iterator[Path]:
    if plan.keep is not None:
        plan.keep.mkdir(parents=True)
        yield plan.keep.absolute()
        return
    directory = Path(tempfile.mkdtemp(prefix="tierfs-bench-", dir="/var/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _questions(plan: Plan, directory: Path, peers: list[Peer]) -> Iterator[Mapping[int, Question]]:
    """The chosen ones, ready to be asked."""
    bench = Bench(directory / "mnt", min(_MOST_HOT_BYTES, _HOT_SHARE * plan.size_bytes))
    local = LocalQuestions(bench, directory, corpus.large_files(plan.size_bytes, 1)[0])
    if plan.questions & _LOCAL:
        local.build()
    with ExitStack() as stack:
        found = {3: local.first_read, 4: local.second_read}
        if plan.questions & _S3:
            s3 = _s3_bench(plan, directory, peers, bench, stack)
            sequential, blocks = SequentialQuestions(s3), RandomQuestions(s3)
            relay = stack.enter_context(RelayServer(s3.site.endpoint_url))
            counted = CountedQuestions(s3, relay)
            found |= {1: sequential.one_reader, 2: sequential.several_readers, _MANY: sequential.many_readers}
            found |= {_FIRST_BYTE: lambda: blocks.first_byte(directory / "chunky"), 6: blocks.random_blocks}
            found |= {_CACHE: lambda: counted.disk_cache(local), _FETCHED: counted.fetched}
        yield {number: found[number]() for number in plan.questions}


def _s3_bench(plan: Plan, directory: Path, peers: list[Peer], bench: Bench, stack: ExitStack) -> S3Bench:
    """A server with everything the chosen questions read."""
    large = corpus.large_files(plan.size_bytes, SEVERAL_READERS if _SEVERAL in plan.questions else 1)
    small = corpus.small_files(plan.size_bytes, MANY_READERS) if _MANY in plan.questions else []
    stored = _COPIES * sum(file.size_bytes for file in large) + sum(file.size_bytes for file in small)
    machine.require_memory(_SERVER_SHARE * stored)
    os.environ.setdefault(_CEPH_MEMORY, str(stored + _CEPH_SPARE_BYTES))
    _say("starting the S3 server and writing what is read")
    endpoint = stack.enter_context(RgwServer(directory / "ceph")).endpoint
    bucket = endpoint.create_bucket()
    whole = corpus.Corpus(directory / "s3", bucket, endpoint, tuple(large), tuple(small))
    site = Site(endpoint.endpoint_url, bucket, directory / "scratch")
    site.scratch.mkdir()
    corpus.build(whole, peers, site, directory / "mnt")
    if _FIRST_BYTE in plan.questions:
        chunky.build(directory / "chunky", endpoint, bucket)
        corpus.fill_cold(directory / "chunky", [corpus.WARM_FILE])
    return S3Bench(bench, whole, site, tuple(peers))


def _prepare_environment() -> None:
    """Credentials of the test server, and the interpreter's own programs findable."""
    os.environ.update(ENVIRONMENT)
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone refuses plain HTTP with it
    os.environ["PATH"] += f":{Path(sys.executable).parent}"


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def parse_questions(text: str) -> frozenset[int]:
    """Numbers of questions from `1,5,6`. Raises ValueError naming one that does not exist."""
    known = {str(number): number for number in QUESTIONS}
    for part in text.split(","):
        if part not in known:
            raise ValueError(f"no question {part!r}; there are {QUESTIONS.start} to {QUESTIONS.stop - 1}")
    return frozenset(known[part] for part in text.split(","))


def parse_peers(text: str) -> tuple[str, ...]:
    """Programs from `s3fs,rclone`. Raises ValueError naming one that is not known."""
    known = [peer.program for peer in KNOWN]
    found = tuple(word for word in text.split(",") if word)
    for word in found:
        if word not in known:
            raise ValueError(f"no program {word!r}; known are {', '.join(known)}")
    return found


def check_size(size_bytes: int) -> int:
    """The same size. Raises ValueError where the workloads need more, or whole MiB."""
    least = MANY_READERS * MIB
    if size_bytes < least or size_bytes % MIB:
        raise ValueError(f"the size must be whole MiB and at least {least // MIB} MiB")
    return size_bytes

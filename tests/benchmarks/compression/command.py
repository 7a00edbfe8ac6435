"""`python -m tests.benchmarks compressed-SUBJECT`: measure, print a sheet, and keep every repetition as JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from tests.benchmarks.compression import texts
from tests.benchmarks.compression.bounds import sheet
from tests.benchmarks.compression.material import AUTO, BEFORE, OFF, ZSTD, make_store, write_text
from tests.benchmarks.compression.offloading import CompressedOffload, uploads_too
from tests.benchmarks.compression.reading import CompressedReading
from tests.benchmarks.compression.site import all_redirected, built, hot_bytes, served
from tests.benchmarks.compression.small_files import FILE_BYTES, FILES, SmallText
from tests.benchmarks.compression.spark import counted_lines
from tests.benchmarks.reading import machine
from tests.benchmarks.reading.figures import DIRECTORY, FARTHER, LINK_NAMES, LOOPBACK, Answer, Results, load
from tests.benchmarks.reading.links import BY_NAME, reached
from tests.benchmarks.reading.peers import JUICE, JUICE_ZSTD, Peer
from tests.benchmarks.reading.plan import Plan, parse_links
from tests.benchmarks.reading.run import ask, prepare_environment, working_directory
from tests.benchmarks.reading.subjects import Question
from tests.benchmarks.spark.session import session
from tierfs.base.words import units
from tierfs.base.words.types import MIB

PREFIX = "compressed-"
SMALL_SUBJECT = f"{PREFIX}small"
RESULTS_NAME = "compression.json"

_SIZE_BYTES = 512 * MIB
_REPETITIONS = 5
_DOCS = Path(__file__).parents[3] / "docs"
_POLICIES = (OFF, ZSTD, AUTO)
_COPIES = 6
"""Of a file in the server, for each repetition: it deletes late what subjects left, and a full one does not answer."""


@dataclass(frozen=True)
class Asked:
    """What a run is asked to do, and where it may write."""

    directory: Path
    size_bytes: int
    repetitions: int
    kinds: tuple[str, ...]
    links: tuple[str, ...]
    peers: tuple[Peer, ...]
    files: int
    other: Path | None
    """A checkout of another version, with its .venv."""


Questions = Iterator[tuple[str, Question]]
"""Each with its link, which is there until the next is taken."""


def _reading(asked: Asked) -> Questions:
    with built(asked.directory, asked.kinds, asked.size_bytes, asked.peers, asked.other) as on:
        for name in asked.links:
            with on(BY_NAME[name]) as readers:
                yield name, CompressedReading(readers).one_reader()


def _random(asked: Asked) -> Questions:
    kinds = tuple(kind for kind in asked.kinds if kind != texts.RANDOM)
    with built(asked.directory, kinds, asked.size_bytes, ()) as on:
        for name in asked.links:
            with on(BY_NAME[name]) as readers:
                yield name, CompressedReading(readers).random_blocks()


def _offload(asked: Asked) -> Questions:
    files = [write_text(kind, asked.directory, asked.size_bytes) for kind in asked.kinds]
    with served(asked.directory, _COPIES * asked.size_bytes * asked.repetitions * len(asked.kinds)) as server:
        bucket = server.endpoint.create_bucket()
        made = {name: make_store(asked.directory / name, server.endpoint, bucket, name) for name in _POLICIES}
        if asked.other is not None:
            made[BEFORE] = make_store(asked.directory / BEFORE, server.endpoint, bucket, BEFORE, asked.other)
        for name in asked.links:
            with reached(uploads_too(BY_NAME[name]), server) as (endpoint, _), all_redirected(made, endpoint):
                offload = CompressedOffload(endpoint, bucket, files, made, hot_bytes(asked.size_bytes))
                yield name, offload.offloaded()


def _small(asked: Asked) -> Questions:
    source = write_text(texts.LOGS, asked.directory, asked.size_bytes)
    with served(asked.directory, source.size_bytes * _COPIES * asked.repetitions) as server:
        bucket = server.endpoint.create_bucket()
        small = SmallText(asked.directory, asked.files, server.endpoint, bucket, (OFF, ZSTD))
        small.write(source)
        yield LOOPBACK, small.whole_way()


def _spark(asked: Asked) -> Questions:
    with built(asked.directory, (texts.LOGS,), asked.size_bytes, ()) as on:
        for name in asked.links:
            # Without encryption: Java would need a store of certificates of its own.
            with on(replace(BY_NAME[name], tls=False)) as readers, session(asked.directory, {}) as spark:
                (file,) = readers.files
                yield name, counted_lines(spark, readers, file)


@dataclass(frozen=True)
class _Subject:
    questions: Callable[[Asked], Questions]
    links: tuple[str, ...]
    """On which there is something that must hold."""
    compares: bool = False
    """Whether JuiceFS takes part."""


SUBJECTS: Mapping[str, _Subject] = {
    f"{PREFIX}reading": _Subject(_reading, LINK_NAMES, compares=True),
    f"{PREFIX}random": _Subject(_random, LINK_NAMES),
    f"{PREFIX}offload": _Subject(_offload, (LOOPBACK, FARTHER)),
    SMALL_SUBJECT: _Subject(_small, (LOOPBACK,)),
    f"{PREFIX}spark": _Subject(_spark, (LOOPBACK, FARTHER)),
}


def main(subject: str, arguments: Sequence[str]) -> None:
    """Run it; ends the process with a message where the arguments are wrong."""
    chosen, one = _parsed(subject, arguments), SUBJECTS[subject]
    links = tuple(name for name in one.links if name in chosen.link)
    if not links:
        sys.exit(f"{subject} is asked on none of these links: give some of {', '.join(one.links)} by --link")
    prepare_environment()
    peers = (JUICE, JUICE_ZSTD) if one.compares and not chosen.no_peers else ()
    if peers and shutil.which(JUICE.program) is None:
        sys.exit(f"{JUICE.program} is not on PATH: {JUICE.install}==1.4.2, or --no-peers")
    size_bytes = chosen.files * FILE_BYTES if subject == SMALL_SUBJECT else chosen.size
    plan = Plan(frozenset(), chosen.repetitions, size_bytes, chosen.docs, chosen.keep, links=links)
    try:
        with working_directory(plan.keep) as directory:
            asked = Asked(
                directory, plan.size_bytes, plan.repetitions, chosen.kinds, links, peers, chosen.files, chosen.other
            )
            for link, question in one.questions(asked):
                _keep(ask(question, plan, link), plan.docs, peers)
    except machine.TooLittleMemory as exc:
        sys.exit(str(exc))


def _keep(answer: Answer, docs: Path, peers: Sequence[Peer]) -> None:
    """Put an answer to those on disk, and print it."""
    path = docs / DIRECTORY / RESULTS_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    results = load(path) if path.exists() else Results({})
    results.machine = machine.machine()
    dated = replace(answer, programs=machine.programs(peers), measured=date.today().isoformat())
    results.put(dated)
    results.save(path)
    print(sheet(dated), flush=True)


def _parsed(subject: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks {subject}",
        description="A store that compresses cold objects, next to one that does not. New answers replace older ones.",
    )
    parser.add_argument("--repetitions", type=int, default=_REPETITIONS)
    parser.add_argument("--size", type=units.parse_size, default=_SIZE_BYTES, help="of a large file (512MiB)")
    parser.add_argument("--files", type=int, default=FILES, help=f"small ones ({FILES})")
    names = ",".join(texts.KINDS)
    parser.add_argument("--kinds", type=_kinds, default=tuple(texts.KINDS), help=f"of bytes, some of {names} (all)")
    parser.add_argument("--link", type=parse_links, default=LINK_NAMES, help="like loopback,far (all that count)")
    parser.add_argument("--no-peers", action="store_true", help="leave JuiceFS out")
    parser.add_argument(
        "--other",
        type=_checkout,
        metavar="DIR",
        help="checkout of another version, with its .venv, for -reading and -offload",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in DIR, a new one, and keep it with all logs")
    parser.add_argument("--docs", type=Path, metavar="DIR", default=_DOCS, help="where results are written (docs)")
    return parser.parse_args(arguments)


def _checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / ".venv" / "bin" / "python").exists():
        raise argparse.ArgumentTypeError(f"{path} has no .venv: run `make test-deps` there")
    return path


def _kinds(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if unknown := set(found) - set(texts.KINDS):
        raise argparse.ArgumentTypeError(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(texts.KINDS)}")
    return found

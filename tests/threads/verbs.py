"""Cases of what changes a store, and of what many share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from io import StringIO

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore
from tests.threads.case import THREADS, Case, Make, made
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, Progress
from tierfs.base.options.config import BackgroundSettings, ColdSettings
from tierfs.base.system.clock import SystemClock
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import Closed, Conflict, Unavailable
from tierfs.base.words.types import ByteRange, DirectoryId
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import environment
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import FAILURES
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.engine.segments.managed_ledger import ManagedLedgerWriter
from tierfs.faces.cli.progress import ProgressLine
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.tiering.ledgers.offload_runs import OffloadRuns
from tierfs.upkeep.holder.failures import Failures


def failures(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """The rows on the disk are those in memory, also of work that failed and passed in two threads at once."""
    noted = Failures(store.metadata, BackgroundSettings())

    def work(number: int) -> None:
        for turn in range(30):
            what = f"task {turn % 3}"
            if (number + turn) % 2:
                noted.failed(what, Unavailable("away"))
            else:
                noted.passed(what)
            noted.may_try(what)
            noted.is_stuck(what)

    def check() -> None:
        with store.metadata.read() as txn:
            assert {row.what: row.attempts for _, row in txn.scan(FAILURES)} == {
                what: row.attempts for what, row in noted._rows.items()
            }

    yield Case(work, check)


def group_commit(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Every append is where its range says, beside rolls; no chunk file is left."""
    writers = [store.engine.open_writer(name) for name in "ab"]
    placed: list[tuple[str, ByteRange, bytes]] = []

    def work(number: int) -> None:
        for turn in range(25):
            writer, data = writers[turn % 2], b"%d:%d " % (number, turn)
            placed.append((writer.name, writer.append(data), data))
            if turn % 10 == number:
                store.engine.roll(writer.segment_id)

    def check() -> None:
        held = {name: store.read(name) for name in "ab"}
        assert all(held[name][span.start : span.end] == data for name, span, data in placed)
        assert sum(map(len, held.values())) == sum(len(data) for _, _, data in placed)

    yield Case(work, check)


def bulk_creator(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """One of several threads makes each name."""
    bulk, made = store.engine.bulk_creator(), list[bool]()

    def work(number: int) -> None:
        for turn in range(5):
            made.extend(bulk.create([WholeSegment(f"d/{turn}", b"%d" % turn)], seal=True))

    def check() -> None:
        bulk.close()
        assert sum(made) == 5
        assert [store.read(f"d/{turn}") for turn in range(5)] == [b"%d" % turn for turn in range(5)]

    yield Case(work, check)


def managed_ledger(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Every entry has a position of its own, over ledgers that are closed meanwhile."""
    ledger, added = ManagedLedgerWriter(store.engine, "topic"), list[tuple[str, int]]()

    def work(number: int) -> None:
        for turn in range(10):
            done = ledger.add([b"%d" % number, b"%d" % turn])
            added.extend((str(done.ledger_id), entry) for entry in done.ids)
            if turn == 2 * number:
                ledger.roll()

    def check() -> None:
        ledger.close()
        assert len(set(added)) == len(added)

    yield Case(work, check)


def metadata(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """A store that one thread closes last is open for another that has just opened it."""
    path = store.path / "other"
    MetadataStore.create(path, store.clock).close()
    assert path.resolve() not in environment.environments

    def work(number: int) -> None:
        for _ in range(15):
            with closing(MetadataStore(path, store.clock)) as opened, opened.write() as txn:
                txn.allocate_id()

    yield Case(work)


def app_store(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """What is made on first use is made once."""
    init_store(store.path / "app", Place.in_directory(made(store.path / "tier")))
    for _turn in range(5):
        opened, seen = Store(store.path / "app", SystemClock()), set[int]()

        def work(_: int, opened: Store = opened, seen: set[int] = seen) -> None:
            location = opened.cold_location_id
            assert location is not None
            seen.update(map(id, (opened.metrics, opened.engine, opened.storage_of(location))))

        def check(opened: Store = opened, seen: set[int] = seen) -> None:
            assert len(seen) == 3
            opened.close()

        yield Case(work, check)


def place_connections(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Each place is connected once."""
    (store.path / "chunks").mkdir(exist_ok=True)
    for _turn in range(20):
        made, seen = PlaceConnections(), set[int]()
        place = ScannedStore(str(store.path), "id", (), ColdSettings())

        def work(_: int, made: PlaceConnections = made, seen: set[int] = seen, place: ScannedStore = place) -> None:
            seen.update((id(made.files(place)), id(made.in_flight(place))))

        def check(seen: set[int] = seen) -> None:
            assert len(seen) == 2

        yield Case(work, check)


def offload_runs(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """A run by hand is alone."""
    runs, inside = OffloadRuns(), Counter[str]()

    def work(number: int) -> None:
        for _ in range(100):
            if number == 0:
                with suppress(Conflict), runs.by_hand(DirectoryId(1), "topic"):
                    assert not inside["itself"]
                    inside["hand"] += 1
                    assert not inside["itself"]
                    inside["hand"] -= 1
            else:
                with runs.by_itself(DirectoryId(1)):
                    assert not inside["hand"]

    yield Case(work)


def meter(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """No byte is lost in the sum, and it never goes back."""
    shown: list[int] = []
    summed = Meter(lambda progress: shown.append(progress.done_bytes))

    def work(_: int) -> None:
        for _ in range(500):
            summed(1, "item")

    def check() -> None:
        assert shown == list(range(1, 500 * THREADS + 1))

    yield Case(work, check)


def progress_line(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """No line is drawn while something else is printed, and none stays."""
    terminal, clock = StringIO(), ManualClock()
    line = ProgressLine(terminal, clock)
    clock.advance(10)

    def work(number: int) -> None:
        for turn in range(100):
            line.show(Progress(turn, 0, "item"))
            if number:
                line.tick()
                continue
            with line.away():
                terminal.write("printed\n")

    def check() -> None:
        line.tick()  # the last of all may have been a print, and then there is nothing to erase
        with line.away():
            text = terminal.getvalue()
        assert text.endswith("\r\x1b[K")
        assert re.findall("[^\n]*printed", text.replace("\r\x1b[K", "\n")) == ["printed"] * 100

    yield Case(work, check)


def pool(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Each caller has its own results, in order, or Closed."""
    workers = Pool(3, "test")

    def work(number: int) -> None:
        with suppress(Closed):
            for turn in range(20):
                assert workers.run(lambda item: item * number, range(10)) == [item * number for item in range(10)]
                assert list(workers.in_order(lambda item: item + 1, range(5))) == [1, 2, 3, 4, 5]
                if (number, turn) == (1, 10):
                    workers.close(wait=False)

    yield Case(work, workers.close)


def counters(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """No count is lost."""
    kept = Metrics()

    def work(_: int) -> None:
        for _ in range(200):
            kept.count(MetricName.READ_FALLBACKS, tier="cold")

    def check() -> None:
        assert kept.values(MetricName.READ_FALLBACKS) == {("cold",): 200.0 * THREADS}

    yield Case(work, check)


CASES: dict[str, Make] = {
    "BulkCreator": bulk_creator,
    "Failures": failures,
    "GroupCommit": group_commit,
    "ManagedLedgerWriter": managed_ledger,
    "MetadataStore": metadata,
    "Meter": meter,
    "MetricSink": counters,
    "OffloadRuns": offload_runs,
    "PlaceConnections": place_connections,
    "Pool": pool,
    "ProgressLine": progress_line,
    "Store": app_store,
}

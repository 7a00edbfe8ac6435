"""The matrix of reads: read priority × state of the local copy × state of the cold copy, by the real reader.

A row is a state of the local copy, a column one of the cold copy. A cell says what serves the read, `L` or `C`, or its
errno, and what the read leaves behind: `-l` the local chunk became suspect, `+c` the lost cold chunk is good again,
`xc` it is gone, to be offloaded again, `e` the object's new etag was adopted. A dot is a store that cannot be.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count

import pytest
import trio

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.ledgers import new_ledger
from tests.reading.readers import reader_of, states
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ChunkState, ReadPriority, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import chain_edits, policies
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.reading.patience import Patience
from tierfs.reading.reader import StoreReader

ENTRIES = [random.Random(number).randbytes(1001) for number in range(2 * CRC_BLOCK_BYTES // 1000)]
DATA = b"".join(ENTRIES)
"""Two blocks and a part of the third."""

POLICY = {"chunk_bytes": str(4 * MIB), "object_bytes": str(MIB)}
KINDS = ("segment", "pack", "ledger")
OF_ALL_KINDS = ("good", "none", "flipped")
"""Rows of packs and ledgers too, whose objects are read by other code."""

LOCAL_FIRST = """
local      good  suspect  lost   none    gone      short     flipped   once  copied  away      refused  bug
good       L     L        L      L       L         L         L         L     L       L         L        L
suspect    C     L        L      L       L-c       L-c       L-c       C     Ce      L         L        L
lost       C     C        L+lxc  L+l     L+l-c     L+l-c     L+l-c     C     Ce      L+l       L+l      L+l
none       C     C        C+c    .       EIO-c     EIO-c     EIO-c     C     Ce      EAGAIN    EACCES   EIO
evicted    C     C        C+c    .       EIO-c     EIO-c     EIO-c     C     Ce      EAGAIN    EACCES   EIO
gone       C-l   C-l      C-l+c  EIO-l   EIO-l-c   EIO-l-c   EIO-l-c   C-l   C-le    EAGAIN-l  EIO-l    EIO-l
short      C-l   C-l      C-l+c  EIO-l   EIO-l-c   EIO-l-c   EIO-l-c   C-l   C-le    EAGAIN-l  EIO-l    EIO-l
flipped    C-l   C-l      C-l+c  EIO-l   EIO-l-c   EIO-l-c   EIO-l-c   C-l   C-le    EAGAIN-l  EIO-l    EIO-l
unmounted  C     C        C+c    EAGAIN  EAGAIN-c  EAGAIN-c  EAGAIN-c  C     Ce      EAGAIN    EAGAIN   EAGAIN
"""
OFFLOADED_FIRST = """
local      good  suspect  lost   none    gone      short     flipped   once  copied  away      refused   bug
good       C     L        L      L       L-c       L-c       L-c       C     Ce      L         L         L
suspect    C     C        L      L       L-c       L-c       L-c       C     Ce      L         L         L
lost       C     C        C+c    L+l     L+l-c     L+l-c     L+l-c     C     Ce      L+l       L+l       L+l
none       C     C        C+c    .       EIO-c     EIO-c     EIO-c     C     Ce      EAGAIN    EACCES    EIO
evicted    C     C        C+c    .       EIO-c     EIO-c     EIO-c     C     Ce      EAGAIN    EACCES    EIO
gone       C     C-l      C-l+c  EIO-l   EIO-l-c   EIO-l-c   EIO-l-c   C     Ce      EAGAIN-l  EACCES-l  EIO-l
short      C     C-l      C-l+c  EIO-l   EIO-l-c   EIO-l-c   EIO-l-c   C     Ce      EAGAIN-l  EACCES-l  EIO-l
flipped    C     C-l      C-l+c  EIO-l   EIO-l-c   EIO-l-c   EIO-l-c   C     Ce      EAGAIN-l  EACCES-l  EIO-l
unmounted  C     C        C+c    EAGAIN  EAGAIN-c  EAGAIN-c  EAGAIN-c  C     Ce      EAGAIN    EAGAIN    EAGAIN
"""
LOCAL_ONLY = """
local      good    bug
good       L       L
suspect    L       L
lost       L+l     L+l
none       EAGAIN  EAGAIN
evicted    EAGAIN  EAGAIN
gone       EIO-l   EIO-l
short      EIO-l   EIO-l
flipped    EIO-l   EIO-l
unmounted  EAGAIN  EAGAIN
"""
OFFLOADED_ONLY = """
local    good  suspect  lost  none    gone   short  flipped  once  copied  away    refused  bug
good     C     C        C+c   EAGAIN  EIO-c  EIO-c  EIO-c    C     Ce      EAGAIN  EACCES   EIO
none     C     C        C+c   .       EIO-c  EIO-c  EIO-c    C     Ce      EAGAIN  EACCES   EIO
evicted  C     C        C+c   .       EIO-c  EIO-c  EIO-c    C     Ce      EAGAIN  EACCES   EIO
"""
GRIDS = {
    ReadPriority.LOCAL_FIRST: LOCAL_FIRST,
    ReadPriority.OFFLOADED_FIRST: OFFLOADED_FIRST,
    ReadPriority.LOCAL_ONLY: LOCAL_ONLY,
    ReadPriority.OFFLOADED_ONLY: OFFLOADED_ONLY,
}


def rows() -> Iterator[tuple[ReadPriority, str, dict[str, str]]]:
    """Each row with its cells by column."""
    for priority, grid in GRIDS.items():
        (_, *columns), *lines = (line.split() for line in grid.strip().splitlines())
        for local, *cells in lines:
            yield priority, local, {column: cell for column, cell in zip(columns, cells, strict=True) if cell != "."}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    """A store for all rows: each cell has a segment of its own."""
    with open_test_store(
        tmp_path_factory.mktemp("matrix") / "store", policy=POLICY, cold=ScriptedStorage(MemoryStorage())
    ) as opened:
        opened.engine.make_directory("pack")
        with opened.metadata.write() as txn:
            policies.change(txn, "pack", put_settings={"object_bytes": str(16 * MIB)})
        yield opened


NUMBERS = count()


def written(store: TestStore, kind: str, columns: Iterable[str]) -> dict[str, str]:
    """Return names of sealed segments with the bytes, one for each column; all but `none` have a cold copy."""
    row = f"{kind}/{next(NUMBERS)}"
    paths = {column: f"{kind}/alone/{row}" if column == "none" else f"{row}/{column}" for column in columns}
    if kind == "ledger":
        names = {column: new_ledger(store, ENTRIES, path) for column, path in paths.items()}
    else:
        names = {column: f"{path}/s" for column, path in paths.items()}
        beside = [WholeSegment(f"{path}/before", DATA[:1000]) for path in paths.values()]
        with closing(store.engine.bulk_creator()) as creator:
            creator.create([*beside, *(WholeSegment(name, DATA) for name in names.values())], seal=True)
    for path in [paths[column] for column in columns if column != "none"] if kind == "pack" else [row]:
        store.offload(path)
    for column, name in names.items():
        assert column == "none" or bool(copy_of(store, name, Tier.COLD).object.packed) is (kind == "pack")
    return names


def copy_of(store: TestStore, name: str, tier: Tier) -> PlacedChunk:
    """The one chunk of a segment in a tier."""
    (placed,) = store.layout(name).chunks(tier)
    return placed


def spoil(store: TestStore, name: str, tier: Tier, state: str) -> None:
    """Bring one copy into a state; ends and bits are those of its last byte."""
    if state in ("none", "evicted", "good", "unmounted"):
        return
    placed = copy_of(store, name, tier)
    segment, holder = store.segment(name), placed.object
    assert isinstance(store.cold, ScriptedStorage)
    if state == "suspect":
        assert chain_edits.set_state(store.metadata, segment.id, tier, placed.chunk, ChunkState.SUSPECT)
    elif state == "lost":
        with store.metadata.write() as txn:
            parts = [(placed.chunk.range, ChunkState.LOST)]
            Editor(txn, segment).cut(tier, placed.chunk, parts).put(journaled=True)
    elif state in FAILING:
        store.cold.fail("read", FAILING[state], on=ALWAYS, of=holder.name)
    elif state == "once":
        store.cold.damage(-1, of=holder.name)
    else:
        change(store, placed, state)


FAILING = {"away": Unavailable("down"), "refused": PermissionDenied("refused"), "bug": ZeroDivisionError("a bug")}


def change(store: TestStore, placed: PlacedChunk, state: str) -> None:
    """Change the bytes of a copy, or its etag."""
    holder = placed.object
    if holder.tier is Tier.LOCAL:
        path = store.files.root / holder.name
        path.chmod(0o600)
        data = changed(path.read_bytes(), state)
        path.unlink() if data is None else path.write_bytes(data)
        return
    objects = store.cold.inner.objects  # type: ignore[attr-defined]
    held = objects[holder.name]
    data = changed(held.data, state)
    if data is None:
        del objects[holder.name]
    else:
        etag = held.stored.etag + ("-copied" if state == "copied" else "")
        objects[holder.name] = replace(held, data=data, stored=replace(held.stored, etag=etag, length_bytes=len(data)))


def changed(data: bytes, state: str) -> bytes | None:
    last = data.rindex(ENTRIES[-1]) + len(ENTRIES[-1]) - 1
    return {
        "gone": None,
        "short": data[:last],
        "flipped": data[:last] + bytes([data[last] ^ 0x10]) + data[last + 1 :],
        "copied": data,
    }[state]


@contextmanager
def files_of(store: TestStore, state: str) -> Iterator[ChunkFiles]:
    """The chunk files as a process finds them, whose directory may be an empty mount point."""
    root = store.files.root
    aside = root.with_name("aside")
    if state != "unmounted":
        yield store.files
        return
    root.rename(aside)
    root.mkdir()
    with closing(ChunkFiles(root)) as files:
        yield files
    root.rmdir()
    aside.rename(root)


def left(store: TestStore, name: str) -> dict[Tier, list[ChunkState]]:
    return {tier: states(store, tier, name) for tier in Tier}


async def outcome(
    store: TestStore, name: str, priority: ReadPriority, local: str, cold: str, errors: list[str] | None = None
) -> str:
    """Bring both copies into their states, read, and say what came of it; `errors` gets the message."""
    assert isinstance(store.cold, ScriptedStorage)
    storage, quiet = store.cold, Tier.COLD not in priority.tiers or (priority.tiers[0], local) == (Tier.LOCAL, "good")
    if local == "none":
        store.evict(name)
    with files_of(store, local) as files:
        async with StoreReader(store.metadata, files, lambda _: store.cold, ReadSettings(), NullMetrics()) as reader:
            before_it = None
            if local == "evicted":
                before_it = reader.open(store.segment(name).id, priority=priority)
                store.evict(name)
            for tier, state in ((Tier.LOCAL, local), (Tier.COLD, cold)):
                spoil(store, name, tier, state)
            handle = before_it or reader.open(store.segment(name).id, priority=priority)
            before = left(store, name)
            storage.reads.clear()
            try:
                assert bytes(await handle.read(0, 2 * len(DATA))) == DATA
                said = handle.served_from.name[0]  # type: ignore[union-attr]
            except TierfsError as exc:
                said = errno.errorcode[exc.errno]
                (errors if errors is not None else []).append(str(exc))
            assert not (quiet and storage.reads), "the cold tier was asked"
            handle.close()
            await reader._marks.settle()
    for tier, after in left(store, name).items():
        if after != before[tier]:
            said += ("x" if not after else "+" if after < before[tier] else "-") + tier.name[0].lower()
    adopted = cold == "copied" and copy_of(store, name, Tier.COLD).object.etag.endswith("-copied")
    return said + "e" * adopted


@pytest.fixture
def two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of a read that waits passes in its second pause."""

    async def pause(patience: Patience, error: TierfsError) -> None:
        await trio.lowlevel.checkpoint()
        if patience.last is not None:
            raise trio.TooSlowError
        patience.last = error

    monkeypatch.setattr(Patience, "pause", pause)


@pytest.mark.usefixtures("two_rounds")
@pytest.mark.parametrize(
    ("kind", "priority", "local", "cells"),
    [
        pytest.param(kind, *row, id=f"{kind}-{row[0].value}-{row[1]}")
        for row in rows()
        for kind in (KINDS if row[1] in OF_ALL_KINDS else KINDS[:1])
    ],
)
async def test_every_read_ends_as_the_matrix_says(
    store: TestStore,
    kind: str,
    priority: ReadPriority,
    local: str,
    cells: dict[str, str],
    expected_warnings: list[str],
) -> None:
    expected_warnings += ["is read from the", "unexpected ZeroDivisionError"]
    names = written(store, kind, cells)
    seen = {cold: await outcome(store, name, priority, local, cold) for cold, name in names.items()}
    assert seen == cells


@pytest.mark.usefixtures("two_rounds")
@pytest.mark.parametrize(
    ("priority", "local", "cold", "message"),
    [
        (
            "local-only",
            "none",
            "good",
            r"segment \S+: bytes 0 to 262262 are not in the local tier, and the read priority is local-only \(.*\)",
        ),
        ("local-only", "flipped", "good", r"chunk file \S+: bytes 262144 to 262262 do not match their checksum"),
        ("local-only", "short", "good", r"chunk file \S+ ends at 262261; 1 more bytes were committed"),
        ("local-only", "unmounted", "good", r"segment \S+: no answer within 90 s: \S+ has no chunk files.*"),
        ("offloaded-only", "good", "flipped", r"\S+: bytes 262144 to 262262 do not match their checksum"),
        ("offloaded-only", "good", "gone", r"segment \S+: segments/\S+: not found"),
        ("offloaded-only", "good", "away", r"segment \S+: no answer within 90 s: down"),
        ("offloaded-only", "good", "bug", r"segment \S+: segments/\S+: internal error: ZeroDivisionError: a bug"),
        ("local-first", "flipped", "away", r"segment \S+: no answer within 90 s: down"),
    ],
    ids=lambda word: word.partition(" ")[0],
)
async def test_errors_say_what_is_wrong_with_each_copy(
    store: TestStore, priority: str, local: str, cold: str, message: str, expected_warnings: list[str]
) -> None:
    expected_warnings.append("unexpected ZeroDivisionError")
    (name,) = written(store, "segment", [cold]).values()
    errors: list[str] = []
    await outcome(store, name, ReadPriority(priority), local, cold, errors)
    (said,) = errors
    assert re.fullmatch(message, said)


@pytest.mark.parametrize(("theirs", "tier"), [("bookkeeper-first", Tier.LOCAL), ("tiered-storage-first", Tier.COLD)])
async def test_the_policy_of_a_managed_ledger_decides(store: TestStore, theirs: str, tier: Tier) -> None:
    (name,) = written(store, "ledger", [theirs]).values()
    with store.metadata.write() as txn:
        policies.change(txn, name.rpartition("/")[0], put_settings={"read_priority": ReadPriority(theirs).value})
    async with reader_of(store) as reader:
        handle = reader.open(store.segment(name).id)
        assert bytes(await handle.read(250, 3000)) == DATA[250:3250]
        assert handle.served_from is tier
        handle.close()

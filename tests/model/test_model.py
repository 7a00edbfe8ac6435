"""Random verbs against a bytearray per segment, with crashes between them."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from tests.fsck.looking import findings
from tests.stores import open_test_store
from tierfs.errors import Conflict, InvalidRequest, NotFound, Sealed
from tierfs.fsck.findings import Severity
from tierfs.metadata import chains, changes, directories
from tierfs.metadata.tables import CHECKSUMS, CHUNKS, INTENTS, OBJECTS, SEGMENTS
from tierfs.segments import delete, stat, trash
from tierfs.segments.writer import SegmentWriter
from tierfs.types import ByteRange, Tier

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/c"])
DATA = st.binary(min_size=0, max_size=19)


class StoreModel(RuleBasedStateMachine):
    """One store and its expected bytes."""

    segments = Bundle("segments")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="tierfs-model-"))
        self.patch = patch.object(delete, "BATCH_RECORDS", 3)
        self.patch.start()
        self.context = open_test_store(self.directory / "store")
        self.store = self.context.__enter__()
        self.model: dict[str, bytearray] = {}
        self.start: dict[str, int] = {}
        self.sealed: set[str] = set()
        self.writers: dict[str, SegmentWriter] = {}
        self.trash: dict[str, list[tuple[int, bytearray, int, bool]]] = {}

    def teardown(self) -> None:
        wrong = [one for one in findings(self.store) if one.severity is not Severity.NOTE]
        self.context.__exit__(None, None, None)
        self.patch.stop()
        shutil.rmtree(self.directory)
        assert wrong == []

    @rule(target=segments, name=NAMES)
    def create(self, name: str) -> object:
        if name in self.model:
            return multiple()
        self.store.append(name, b"")
        self.model[name] = bytearray()
        return name

    @rule(name=segments, data=DATA)
    def append(self, name: str, data: bytes) -> None:
        if name in self.sealed or name not in self.model:
            return
        writer = self.writers.get(name)
        if writer is None:
            writer = self.writers[name] = self.store.engine.open_writer(name)
        before = len(self.model[name])
        assert writer.append(data, expected_offset=before) == ByteRange(before, before + len(data))
        self.model[name] += data

    @rule(name=segments)
    def close(self, name: str) -> None:
        writer = self.writers.pop(name, None)
        if writer is not None:
            self.store.engine.close_writer(writer)

    @rule(name=segments)
    def seal(self, name: str) -> None:
        if name not in self.model:
            with pytest.raises(NotFound):
                self.store.engine.seal(name)
            return
        self.store.engine.seal(name)
        self.sealed.add(name)
        writer = self.writers.pop(name, None)
        if writer is not None:
            with pytest.raises(Sealed):
                writer.append(b"x")

    @rule(name=segments)
    def unseal(self, name: str) -> None:
        if name in self.model:
            record, changed = self.store.engine.unseal(name)
            assert changed == (name in self.sealed)
            assert not record.sealed
            self.sealed.discard(name)

    @rule(name=segments, part=st.floats(0, 1.2))
    def truncate(self, name: str, part: float) -> None:
        if name not in self.model:
            return
        length, start = len(self.model[name]), self.start.get(name, 0)
        before = int(part * length)
        if before > length:
            with pytest.raises(InvalidRequest):
                self.store.engine.truncate(name, before, cold_due_ms=0)
            return
        done = self.store.engine.truncate(name, before, cold_due_ms=self.store.clock.now_ms())
        assert (done.start_offset, done.bytes) == (max(start, before), max(start, before) - start)
        self.start[name] = max(start, before)

    @rule(target=segments, into=segments, name=segments, prepare=st.booleans())
    def concat(self, into: str, name: str, prepare: bool) -> object:
        if into == name or not {into, name} <= set(self.model):
            return multiple()
        if prepare:
            self.seal(name)
            self.unseal(into)
        if into in self.sealed or name not in self.sealed:
            with pytest.raises((Sealed, Conflict)):
                self.store.engine.concat(into, name)
            return multiple()
        self.store.engine.concat(into, name)
        self.model[into] += self.model.pop(name)[self.start.pop(name, 0) :]
        self.sealed.discard(name)
        return into

    @rule(name=segments)
    def roll(self, name: str) -> None:
        if name in self.model:
            self.store.engine.roll(self.store.segment(name).id)

    @rule()
    def offload(self) -> None:
        self.store.offload()
        for name, data in self.model.items():
            start = self.start.get(name, 0)
            assert self.store.read(name, Tier.COLD)[start:] == data[start:]

    @rule()
    def evict(self) -> None:
        self.store.evict()

    @rule(name=segments)
    def delete(self, name: str) -> None:
        if name not in self.model:
            return
        self.store.engine.delete(name, recursive=False, cold_due_ms=self.store.clock.now_ms())
        self.writers.pop(name, None)
        del self.model[name]
        self.start.pop(name, None)
        self.sealed.discard(name)

    @rule(name=segments)
    def remove(self, name: str) -> None:
        """Move a segment into the trash, from which the newest removal of a name can be restored."""
        if name not in self.model:
            return
        due_ms = self.store.clock.now_ms()
        done = self.store.engine.delete(name, recursive=False, cold_due_ms=due_ms, to_trash=True)
        self.writers.pop(name, None)
        removed = done.trash_due_ms, self.model.pop(name), self.start.pop(name, 0), name in self.sealed
        self.trash.setdefault(name, []).append(removed)
        self.sealed.discard(name)

    @rule(target=segments, name=NAMES)
    def restore(self, name: str) -> object:
        if name in self.model:
            return multiple()
        if not self.trash.get(name):
            with pytest.raises(NotFound):
                trash.restore(self.store.metadata, name)
            return multiple()
        trash.restore(self.store.metadata, name)
        _, self.model[name], self.start[name], sealed = self.trash[name].pop()
        self.sealed |= {name} if sealed else set()
        return name

    @rule(finished=st.booleans())
    def delete_directory(self, finished: bool) -> None:
        """Delete, with or without a crash after the first commit."""
        below = [name for name in self.model if name.startswith("d/")]
        if not below:
            return
        with patch.object(delete, "dismantle_removed") if not finished else nullcontext():
            self.store.engine.delete("d", recursive=True, cold_due_ms=self.store.clock.now_ms())
        for name in below:
            self.writers.pop(name, None)
            del self.model[name]
            self.start.pop(name, None)
            self.sealed.discard(name)

    @rule()
    def crash(self) -> None:
        self.writers = {}
        self.store.reopen()

    @rule()
    def settle_and_look_for_orphans(self) -> None:
        self.store.clock.advance(7200)
        self.store.settle()
        self.store.clock.advance(7200)  # what a crashed delete left was queued as garbage only now
        self.store.settle()
        now_ms = self.store.clock.now_ms()
        self.trash = {name: [each for each in stack if each[0] > now_ms] for name, stack in self.trash.items()}
        with self.store.metadata.read() as txn:
            assert directories.next_queued(txn) is None
            holders = [holder for _, holder in txn.scan(OBJECTS)]
            assert txn.count(INTENTS.name) == 0
            assert list(changes.outbox(txn, 0)) == []
        cold = {holder.name for holder in holders if holder.tier is Tier.COLD}
        assert {found.name for found in self.store.cold.list("segments/")} == cold

    @invariant()
    def bytes_and_records_agree(self) -> None:
        with self.store.metadata.read() as txn:
            found = {name: record for name, record in directories.segments_below(txn, directories.Entry("", 0, 1), "")}
            assert set(found) == set(self.model)
            if directories.next_queued(txn) is None:
                assert txn.sums is not None
                assert txn.count(SEGMENTS.name) == len(self.model) + txn.sums.trash_segments
            self._check_references(txn)
            for name in found:
                stat.stat(txn, name)
        for name, data in self.model.items():
            start = self.start.get(name, 0)
            assert (found[name].start_offset, found[name].length) == (start, len(data))
            assert self.store.read(name)[start:] == data[start:]

    def _check_references(self, txn) -> None:
        references: dict[int, int] = {}
        for _, chunk in txn.scan(CHUNKS):
            chunk.check()
            references[chunk.object_id] = references.get(chunk.object_id, 0) + 1
        holders = {holder.id: holder for _, holder in txn.scan(OBJECTS)}
        assert {key: holder.references for key, holder in holders.items()} == references
        runs = {int.from_bytes(key[:8], "big") for key, _ in txn.scan(CHECKSUMS)}
        assert runs == set(holders)
        for _, segment in txn.scan(SEGMENTS):
            segment.check()
            for tier in Tier:
                lengths = [chunk.length for chunk in chains.chunks(txn, segment.id, tier)]
                assert (len(lengths), sum(lengths)) == (segment.tier_state(tier).count, segment.tier_state(tier).bytes)


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)

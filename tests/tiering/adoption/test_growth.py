"""Layouts that grow: adoption again links what is new, cuts what its system deleted, and proves what was linked."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tests.tiering.adoption.foreign import ForeignBucket, cat, counts, directory_state, states, write_files
from tests.tiering.adoption.test_pravega import S, chunk, header, slts
from tests.tiering.adoption.test_rocketmq import PLUGIN, Q, posix
from tierfs.app.adopt import ROCKETMQ, Adopter
from tierfs.app.store import open_store
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import Conflict
from tierfs.base.words.types import LocationId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.tables import GARBAGE
from tierfs.tiering.adoption.grow import compare
from tierfs.tiering.adoption.link import link
from tierfs.tiering.adoption.plan import SegmentPlan
from tierfs.tiering.adoption.read import PartSums

LOG = f"mq/{Q}/COMMIT_LOG"
STREAM = f"prv/{S}"


def adopt(store: Path, root: Path | str, into: str, *words: object, check: bool = True) -> Done:
    layout = "rocketmq" if into == "mq" else "pravega"
    return tierfs("-q", "adopt", root, "--into", into, "--as", layout, *words, "--json", store=store, check=check)


def segment(store: Path, name: str) -> SegmentRecord:
    with open_store(store) as opened, opened.metadata.read() as txn:
        return directories.segment_by_name(txn, name)


def outcome(done: Done, name: str) -> tuple[str, int, int]:
    (row,) = (row for row in done.json["segments"] if row["segment"] == name)
    return row["state"], row["new_bytes"], row["removed_bytes"]


def plugin(position: int | None, base: int = 0) -> str:
    return f"{PLUGIN}/seg-{base}/" + ("segment/segment-0" if position is None else f"chunk/chunk-{position}")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return tmp_path / "theirs"


def test_new_chunks_are_linked_in_one_commit_and_nothing_new_is_said(store: Path, theirs: Path) -> None:
    data = os.urandom(400_000)
    write_files(theirs, {plugin(0): data[:150_000]})
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("adopted", 150_000, 0)
    sealed = segment(store, LOG)
    write_files(theirs, {plugin(150_000): data[150_000:300_000], plugin(300_000): data[300_000:]})
    before = directory_state(theirs)
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("grown", 250_000, 0)
    grown = segment(store, LOG)
    assert (grown.sealed, grown.length, grown.grows_from > 0) == (False, 400_000, True)
    assert grown.inode != sealed.inode, "a cached handle of a sealed file never grows"
    assert cat(store, LOG) == data
    rows = counts(store)
    done = tierfs("adopt", theirs, "--into", "mq", "--as", "rocketmq", store=store)
    assert done.out.endswith("nothing new; 1 segment: 1 already adopted\n")
    assert (counts(store), segment(store, LOG)) == (rows, grown)
    assert directory_state(theirs) == before


@pytest.mark.parametrize("first", [1, 131_071, 131_072, 131_073, 300_000])
def test_a_file_that_grows_in_place_keeps_its_inode_once_it_is_known_to_grow(
    store: Path, theirs: Path, first: int
) -> None:
    data = os.urandom(500_000)
    inodes = set()
    for end in (first, first + 1, 400_000, 500_000):
        write_files(theirs, {posix(0): data[:end]})
        adopt(store, theirs, "mq")
        assert cat(store, LOG) == data[:end]
        inodes.add(segment(store, LOG).inode)
    assert len(inodes) == 2
    assert tierfs("-q", "check", "--read", store=store, check=False).code == 0


def test_a_sealed_object_replaces_its_chunks(store: Path, theirs: Path) -> None:
    data = os.urandom(700_000)
    cuts = [0, 100_001, 400_000, 550_000]
    write_files(theirs, {plugin(a): data[a:b] for a, b in pairwise(cuts)})
    adopt(store, theirs, "mq")
    for at in cuts[:-1]:
        (theirs / plugin(at)).unlink()
    write_files(theirs, {plugin(None): data[:600_000], plugin(0, 600_000): data[600_000:]})
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("grown", 150_000, 0)
    assert cat(store, LOG) == data
    (theirs / plugin(0, 600_000)).unlink()
    write_files(theirs, {plugin(None, 600_000): data[600_000:]})
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("linked anew", 0, 0)
    assert cat(store, LOG) == data
    assert states(adopt(store, theirs, "mq")) == {LOG: "already adopted"}


def test_a_head_that_its_system_deleted_is_truncated(store: Path, theirs: Path) -> None:
    data = os.urandom(300_000)
    write_files(theirs, {plugin(None): data[:100_000], plugin(None, 100_000): data[100_000:200_000]})
    adopt(store, theirs, "mq")
    before = segment(store, LOG)
    (theirs / plugin(None)).unlink()
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("truncated", 0, 100_000)
    after = segment(store, LOG)
    assert (after.start_offset, after.length) == (100_000, 200_000)
    assert after.inode != before.inode
    assert after.changed_ms > before.changed_ms
    assert cat(store, LOG) == data[100_000:200_000]
    (theirs / plugin(None, 100_000)).unlink()
    write_files(theirs, {plugin(0, 200_000): data[200_000:]})
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("grown", 100_000, 100_000)
    assert cat(store, LOG) == data[200_000:]
    assert tierfs("status", "--json", store=store).json["cold"]["bytes"] == 100_000
    assert counts(store)[GARBAGE.name] == 0, "what is theirs is never deleted"


def test_after_a_hole_a_queue_goes_on_under_the_name_of_its_run(store: Path, theirs: Path) -> None:
    data = os.urandom(400_000)
    write_files(theirs, {posix(0): data[:100_000]})
    adopt(store, theirs, "mq")
    (theirs / posix(0)).unlink()
    write_files(theirs, {posix(200_000): data[200_000:300_000]})
    later = f"{LOG}.200000"
    assert states(adopt(store, theirs, "mq"))[later] == "adopted"
    write_files(theirs, {posix(300_000): data[300_000:]})
    assert outcome(adopt(store, theirs, "mq"), later) == ("grown", 100_000, 0)
    assert cat(store, later) == data[200_000:]


@pytest.mark.parametrize("wrong", [0, 140_000, 150_999])
def test_linked_bytes_that_changed_are_refused_by_name(store: Path, theirs: Path, wrong: int) -> None:
    data = bytearray(os.urandom(200_000))
    write_files(theirs, {posix(0): bytes(data[:151_000])})
    adopt(store, theirs, "mq")
    rows = counts(store)
    data[wrong] ^= 1
    write_files(theirs, {posix(0): bytes(data)})
    done = adopt(store, theirs, "mq", check=False)
    (error,) = done.json["errors"]
    assert error["kind"] == "AlreadyExists"
    assert f"{posix(0)} differs from the" in error["error"]
    assert f"from byte {wrong // 131_072 * 131_072} on" in error["error"]
    assert (done.code, counts(store)) == (5, rows)


def test_a_copy_of_a_place_is_another_place(store: Path, theirs: Path) -> None:
    write_files(theirs, {posix(0): b"abc"})
    adopt(store, theirs, "mq")
    copy = write_files(theirs.with_name("copy"), {posix(0): b"abc", posix(3): b"def"})
    (error,) = adopt(store, copy, "mq", check=False).json["errors"]
    assert f"a segment of the objects in file:{theirs}, not of those in file:{copy}" in error["error"]
    assert cat(store, LOG) == b"abc"


def test_bytes_gone_from_the_end_are_refused_by_name(store: Path, theirs: Path) -> None:
    write_files(theirs, {posix(0): b"abc", posix(3): b"def"})
    adopt(store, theirs, "mq")
    (theirs / posix(3)).unlink()
    (error,) = adopt(store, theirs, "mq", check=False).json["errors"]
    assert f"bytes 3 to 6, once in {posix(3)}, are no longer in its place" in error["error"]


def test_what_was_truncated_here_stays_away(store: Path, theirs: Path) -> None:
    data = os.urandom(300)
    write_files(theirs, {posix(0): data[:100], posix(100): data[100:200]})
    adopt(store, theirs, "mq")
    tierfs("-q", "trim", LOG, "--before", "150", "--yes", store=store)
    assert states(adopt(store, theirs, "mq")) == {LOG: "already adopted"}
    write_files(theirs, {posix(200): data[200:]})
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("grown", 100, 0)
    assert cat(store, LOG) == data[150:]


def test_nothing_is_appended_to_a_segment_that_grows(store: Path, theirs: Path) -> None:
    write_files(theirs, {posix(0): b"abc"})
    adopt(store, theirs, "mq")
    write_files(theirs, {posix(3): b"def"})
    adopt(store, theirs, "mq")
    tierfs("append", "other", "--seal", store=store, stdin=b"x")
    for words in (("append", LOG), ("append", LOG, "--take-over"), ("concat", LOG, "other", "--yes")):
        refused = tierfs(*words, store=store, stdin=b"x", check=False)
        assert "follows file:/" in refused.err
        assert refused.code
    tierfs("seal", LOG, store=store)
    tierfs("unseal", LOG, store=store)
    tierfs("append", LOG, store=store, stdin=b"x")
    write_files(theirs, {posix(6): b"ghi"})
    assert adopt(store, theirs, "mq", check=False).code
    assert cat(store, LOG) == b"abcdefx"


def test_a_place_does_not_grow_into_a_segment_that_was_unsealed_here(store: Path, theirs: Path) -> None:
    """The next bytes are appends of this store: those of the place would take their offsets."""
    write_files(theirs, {posix(0): b"abc"})
    adopt(store, theirs, "mq")
    tierfs("unseal", LOG, store=store)
    write_files(theirs, {posix(3): b"def"})
    (error,) = adopt(store, theirs, "mq", check=False).json["errors"]
    assert "unsealed, so it accepts appends of this store" in error["error"]
    tierfs("append", LOG, store=store, stdin=b"own")
    (error,) = adopt(store, theirs, "mq", check=False).json["errors"]
    assert "a segment of this store's own bytes" in error["error"]
    tierfs("seal", LOG, store=store)
    assert adopt(store, theirs, "mq", check=False).code == 5
    assert cat(store, LOG) == b"abcown"


@pytest.mark.parametrize("server", ["moto", pytest.param("rgw", marks=pytest.mark.s3)])
def test_a_pravega_stream_that_grows_is_read_as_pravega_would(
    store: Path, server: str, request: pytest.FixtureRequest
) -> None:
    theirs, data = ForeignBucket(request.getfixturevalue(f"{server}_bucket")), os.urandom(500_000)
    words = (theirs.url("p"), "prv", *theirs.options)
    theirs.put({f"p/{slts(1, 0)}": data[:150_000]})
    adopt(store, *words)
    # The chunk of the first owner grew, then another owner began one.
    theirs.put({f"p/{slts(1, 0)}": data[:200_000], f"p/{slts(2, 200_000)}": data[200_000:300_000]})
    assert outcome(adopt(store, *words), STREAM) == ("grown", 150_000, 0)
    assert cat(store, STREAM) == data[:300_000]
    # Both were joined into the first, and a third one follows.
    theirs.put({f"p/{slts(1, 0)}": data[:300_000], f"p/{slts(2, 300_000)}": data[300_000:]})
    client = theirs.bucket[0].client()
    client.delete_object(Bucket=theirs.bucket[1], Key=f"p/{slts(2, 200_000)}")
    assert outcome(adopt(store, *words), STREAM) == ("grown", 200_000, 0)
    assert cat(store, STREAM) == data
    client.delete_object(Bucket=theirs.bucket[1], Key=f"p/{slts(1, 0)}")
    client.close()
    assert outcome(adopt(store, *words), STREAM) == ("truncated", 0, 300_000)
    assert cat(store, STREAM) == data[300_000:]


def test_rolling_storage_grows(store: Path, theirs: Path) -> None:
    write_files(theirs, {f"{S}$header": header((0, chunk(0))), chunk(0): b"hello"})
    adopt(store, theirs, "prv")
    write_files(theirs, {f"{S}$header": header((0, chunk(0)), (7, chunk(7))), chunk(0): b"hello, ", chunk(7): b"world"})
    assert outcome(adopt(store, theirs, "prv"), STREAM) == ("grown", 7, 0)
    assert cat(store, STREAM) == b"hello, world"


def test_a_recovered_store_has_what_was_linked_last(tmp_path: Path, theirs: Path) -> None:
    store, cold, other = tmp_path / "store", tmp_path / "cold", tmp_path / "other"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store, check=False)
    data = os.urandom(700_000)
    write_files(theirs, {plugin(0): data[:100_001], plugin(100_001): data[100_001:400_000]})
    adopt(store, theirs, "mq")
    for at in (0, 100_001):
        (theirs / plugin(at)).unlink()
    write_files(theirs, {plugin(None): data[:500_000], plugin(None, 500_000): data[500_000:600_000]})
    adopt(store, theirs, "mq")
    (theirs / plugin(None)).unlink()
    write_files(theirs, {plugin(None, 600_000): data[600_000:]})
    adopt(store, theirs, "mq")
    tierfs("-q", "recover", "--cold-dir", cold, "--yes", store=other, check=False)
    kept = {"start_offset", "length", "grows_from", "modified_ms", "status", "cold"}
    before, after = segment(store, LOG), segment(other, LOG)
    assert {name: getattr(after, name) for name in kept} == {name: getattr(before, name) for name in kept}
    assert states(adopt(other, theirs, "mq")) == {LOG: "already adopted"}
    assert cat(other, LOG) == data[500_000:]
    assert tierfs("-q", "check", "--read", store=other, check=False).code == 0


def test_a_crash_while_growth_is_linked_changes_nothing(
    store: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    write_files(theirs, {posix(0): b"abc", posix(3): b"def"})
    adopt(store, theirs, "mq")
    rows, before = counts(store), segment(store, LOG)
    (theirs / posix(0)).unlink()
    write_files(theirs, {posix(6): b"ghi"})
    for step in ("remove", "link_objects", "put"):
        with monkeypatch.context() as patch:
            patch.setattr(Editor, step, crash)
            with open_store(store) as opened:
                adopter = Adopter(opened, ROCKETMQ, "mq")
                planned = adopter.plan(adopter.find(str(theirs)))
                with pytest.raises(Crash):
                    adopter.adopt(planned, 1, Meter())
        assert (counts(store), segment(store, LOG)) == (rows, before)
    assert outcome(adopt(store, theirs, "mq"), LOG) == ("grown", 3, 3)
    assert cat(store, LOG) == b"defghi"


def test_a_segment_that_changed_since_it_was_compared_is_left_alone(store: Path, theirs: Path) -> None:
    write_files(theirs, {posix(0): b"abc"})
    adopt(store, theirs, "mq")
    write_files(theirs, {posix(3): b"def"})
    place = LocationRecord(id=LocationId(0), url=f"file:{theirs}", writable=False)
    with open_store(store) as opened:
        adopter = Adopter(opened, ROCKETMQ, "mq")
        (plan,) = adopter.plan(adopter.find(str(theirs))).plan.segments
        assert isinstance(plan, SegmentPlan)
        with opened.metadata.read() as txn:
            difference = compare(txn, plan, place, thorough=True)
        opened.engine.unseal(LOG)
        with pytest.raises(Conflict, match="was changed meanwhile"):
            link(opened.metadata, difference, place, [PartSums(b"0000", 1)], grows=False)
    assert cat(store, LOG) == b"abc"


def test_a_file_that_is_appended_to_meanwhile_is_adopted_as_it_was_listed(store: Path, theirs: Path) -> None:
    data = os.urandom(4 << 20)
    write_files(theirs, {posix(0): data[:1000]})
    ended = threading.Event()

    def append() -> None:
        with (theirs / posix(0)).open("ab", buffering=0) as file:
            for at in range(1000, len(data), 10_000):
                file.write(data[at : at + 10_000])
                ended.wait(0.001)
        ended.set()

    writer = threading.Thread(target=append)
    writer.start()
    lengths = []
    while not ended.is_set():
        assert not adopt(store, theirs, "mq").json["errors"]
        lengths.append(segment(store, LOG).length)
        assert cat(store, LOG) == data[: lengths[-1]]
    writer.join()
    assert len(lengths) > 1
    assert lengths == sorted(lengths)
    adopt(store, theirs, "mq")
    assert cat(store, LOG) == data


def test_a_dry_run_foretells_what_a_run_does(store: Path, theirs: Path) -> None:
    data = os.urandom(300_000)
    write_files(theirs, {posix(0): data[:100_000], posix(100_000): data[100_000:200_000]})
    assert outcome(adopt(store, theirs, "mq", "--dry-run"), LOG) == ("would be adopted", 200_000, 0)
    adopt(store, theirs, "mq")
    rows = counts(store)
    assert outcome(adopt(store, theirs, "mq", "--dry-run"), LOG) == ("already adopted", 0, 0)
    write_files(theirs, {posix(200_000): data[200_000:]})
    done = tierfs("adopt", theirs, "--into", "mq", "--as", "rocketmq", "--dry-run", store=store)
    assert f"{LOG}: would grow by 97.7 KiB, 293 KiB in 3 objects" in done.out
    (theirs / posix(200_000)).unlink()
    (theirs / posix(0)).unlink()
    assert outcome(adopt(store, theirs, "mq", "--dry-run"), LOG) == ("would be truncated", 0, 100_000)
    write_files(theirs, {posix(0): data[:100_000]})
    assert outcome(adopt(store, theirs, "mq", "--dry-run"), LOG) == ("would be read again", 0, 0)
    (theirs / posix(100_000)).unlink()
    refused = adopt(store, theirs, "mq", "--dry-run", check=False)
    assert (refused.code, outcome(refused, LOG)) == (5, ("failed", 0, 0))
    assert counts(store) == rows

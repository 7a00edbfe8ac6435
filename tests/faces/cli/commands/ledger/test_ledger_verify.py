"""tierfs ledger verify: damage in a ledger's objects, and mere deviations."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.commands import Done, tierfs
from tests.doubles.scripted_storage import ScriptedStorage
from tests.engine.ledger.pulsar_goldens import PULSAR
from tests.stores import LOCATION
from tests.tiering.adoption.foreign import write_files
from tests.tiering.adoption.pulsar import MAGIC, in_files, in_first_form, streamed
from tierfs.app.ledger_verify import LedgerVerifier
from tierfs.app.store import open_store
from tierfs.base.bytes.progress import Meter
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.tables import ENTRIES
from tierfs.tiering.ledgers.offload import LedgerOffloader
from tierfs.tiering.objects import ColdTier

ENTRY_COUNT, ENTRY_BYTES, BLOCK = 3000, 100, 70_000
NAME = "topic/00000000000000000007"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with one cold ledger of 3000 entries in 5 blocks."""
    path = tmp_path / "store"
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=path)
    tierfs("ledger", "create", "topic", "--id", 7, store=path)
    lines = b"".join(b"%099d\n" % number for number in range(ENTRY_COUNT))
    tierfs("ledger", "append", NAME, "--lines", store=path, stdin=lines)
    tierfs("-q", "seal", NAME, store=path)
    with open_store(path) as opened:  # the command takes no blocks that small
        storage = opened.storage_of(LOCATION)
        publisher = Publisher(opened.metadata, storage)
        publisher.publish()
        tier = ColdTier(
            LOCATION, opened.storage_of(LOCATION), publisher.require_recent_ownership, publisher.require_place
        )
        with opened.metadata.read() as txn:
            segment_id = directories.segment_by_name(txn, NAME).id
        LedgerOffloader(opened.metadata, opened.files, tier, BLOCK).offload(segment_id, uuid4())
    tierfs("-q", "offload", store=path)
    return path


def verify(store: Path, path: str = "") -> tuple[int, list[dict[str, Any]]]:
    done = tierfs("--json", "ledger", "verify", path, store=store, check=False)
    return done.code, [json.loads(line) for line in done.out.splitlines()]


def found(store: Path, path: str = "") -> tuple[int, str, str]:
    """Return exit code, state, and first message for the only ledger."""
    code, (one,) = verify(store, path)
    return code, one["state"], one["error"] or next(iter(one["warnings"]["first"]), "")


def object_of(store: Path, *, index: bool = False) -> Path:
    """Return a file of the cold ledger."""
    paths = [path for path in (store.parent / "cold").iterdir() if "-ledger-7" in path.name]
    return next(path for path in paths if path.name.endswith("-index") == index)


def change(path: Path, at: int, data: bytes) -> None:
    """Overwrite bytes of a file, and keep its size and times."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_cold_ledger_is_read_from_its_objects(store: Path) -> None:
    assert found(store) == (0, "ok", "")
    told = tierfs("ledger", "verify", "topic", store=store).out.splitlines()
    assert told[0].startswith(f"ok       {NAME}: 3,000 entries")
    assert told[1] == "1 ledger verified; 0 damaged, 0 with warnings"
    tierfs("-q", "evict", "--force", store=store)
    assert found(store, NAME) == (0, "ok", "")


IN_BLOCK = (BLOCK - 128) // (ENTRY_BYTES + 12)
PADDING_AT = 128 + IN_BLOCK * (ENTRY_BYTES + 12)


def change_row(store: Path, change: Callable[[EntryRun], EntryRun]) -> None:
    with open_store(store) as opened, opened.metadata.write() as txn:
        key, run = list(txn.scan(ENTRIES))[-1]
        txn.put(ENTRIES, key, change(run))


def flip(store: Path, at: int, data: bytes, *, index: bool = False) -> None:
    path = object_of(store, index=index)
    change(path, at if at >= 0 else path.stat().st_size + at + 3, data)


def add_entry(store: Path, length: int) -> None:
    change_row(store, lambda run: replace(run, lengths=(*run.lengths, length)))


def forget_rows(store: Path) -> None:
    with open_store(store) as opened, opened.metadata.write() as txn:
        entries.remove(txn, directories.segment_by_name(txn, NAME).id)


def swapped(run: EntryRun) -> EntryRun:
    return replace(run, lengths=(run.lengths[0] + 1, run.lengths[1] - 1, *run.lengths[2:]))


VERSION = "user.tierfs.s3managedledgeroffloaderformatversion"
DAMAGED, WARNING = (74, "damaged"), (0, "warning")
DAMAGES: dict[str, tuple[Callable[[Path], object], tuple[int, str], str]] = {
    "cut": (
        lambda store: os.truncate(object_of(store), object_of(store).stat().st_size - 1),
        DAMAGED,
        "its record says",
    ),
    "no index": (lambda store: object_of(store, index=True).unlink(), DAMAGED, "-index"),
    "no data": (lambda store: object_of(store).unlink(), DAMAGED, "-ledger-7"),
    "an empty index": (
        lambda store: change(object_of(store, index=True), 0, bytes(40)),
        DAMAGED,
        "magic word of an index",
    ),
    "another version": (
        lambda store: os.setxattr(object_of(store), VERSION, b"12346"),
        DAMAGED,
        "has format version 12346",
    ),
    "no rows": (forget_rows, DAMAGED, "is in the object, but not in the store"),
    "swapped lengths": (lambda store: change_row(store, swapped), DAMAGED, "2492 to 2999 are not at the position"),
    "a moved row": (
        lambda store: change_row(store, lambda run: replace(run, stored_offset=run.stored_offset + 1)),
        DAMAGED,
        "entries 2492 to 2999 are not at the position",
    ),
    "an empty entry more": (partial(add_entry, length=0), DAMAGED, "entry 3000 is not in its object"),
    "an entry more": (partial(add_entry, length=1), DAMAGED, "entry 3000 is not in its object"),
    "a byte": (
        partial(flip, at=BLOCK + 128 + 12 + 50, data=b"?"),
        DAMAGED,
        "1 blocks of 128 KiB differ, the first at byte 0",
    ),
    "a byte further on": (partial(flip, at=3 * BLOCK + 128 + 12, data=b"?"), DAMAGED, "the first at byte 131072"),
    "an entry's number": (partial(flip, at=128 + 11, data=b"\x05"), DAMAGED, "entry 5 is at"),
    "an entry's length": (partial(flip, at=128 + 3, data=b"\x70"), DAMAGED, "is at"),
    "a last entry": (partial(flip, at=PADDING_AT - 112, data=b"\xff"), DAMAGED, "entry 622 is missing"),
    # Pulsar does not look at these.
    "a magic word": (partial(flip, at=0, data=b"\0"), WARNING, "not its magic word"),
    "a header": (partial(flip, at=27, data=b"\x05"), WARNING, "the header of the block at 0 has"),
    "a header's end": (partial(flip, at=100, data=b"\x01"), WARNING, "does not end with zeros"),
    "padding": (partial(flip, at=PADDING_AT, data=b"\xff"), WARNING, "bytes other than padding"),
    "an index's length": (partial(flip, at=7, data=b"\xff", index=True), WARNING, "the index has"),
    "a part's number": (
        partial(flip, at=-12, data=b"\x09", index=True),
        WARNING,
        "the numbers of its parts do not start at",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_each_kind(store: Path, damage: str) -> None:
    do, expected, says = DAMAGES[damage]
    do(store)
    code, state, said = found(store)
    assert (code, state, says in said) == (*expected, True), said


def adopt(store: Path, place: Path, *words: str) -> Done:
    return tierfs("-q", "adopt", "--as", "pulsar", place, "--into", "in", *words, store=store, check=False)


@pytest.mark.parametrize("directory", ["whole", "streaming"])
def test_what_pulsar_wrote_is_right(store: Path, directory: str) -> None:
    adopt(store, PULSAR / directory)
    code, ledgers = verify(store, "in")
    assert (code, {one["state"] for one in ledgers}) == (0, {"ok"}), ledgers
    assert [one["length"] for one in ledgers].count(0) == (directory == "streaming"), "its objects were read too"


def test_what_pulsar_lost_is_a_warning(store: Path) -> None:
    adopt(store, PULSAR / "lost", "--accept-loss")
    code, ledgers = verify(store, "in")
    assert (code, {one["state"] for one in ledgers}) == (0, {"warning"})
    lost = [one["warnings"]["first"][0] for one in ledgers]
    assert lost == [
        f"{span} lost when its object was written" for span in ("entries 2 to 4 were", "entry 1 was", "entry 2 was")
    ]


def test_ledgers_of_the_other_forms_are_verified(store: Path, tmp_path: Path) -> None:
    hollow = streamed(2, [(8, 1, [b"", b""])], {8: 3})
    parts = streamed(1, [(8, 0, [b"a"])], {8: 1}), hollow, streamed(3, [(8, 3, [b"b"]), (8, 4, [b""])], {8: 5})
    adopt(
        store,
        write_files(tmp_path / "theirs", in_files(in_first_form([b"x" * 90] * 9, 9), *parts)),
        "--magic",
        (f"{MAGIC.index.hex()}:{MAGIC.block.hex()}"),
    )
    code, ledgers = verify(store, "in")
    assert (code, [(one["state"], one["entries"]) for one in ledgers]) == (0, [("ok", 5), ("ok", 9)]), ledgers


def test_a_ledger_that_is_not_offloaded_has_nothing_to_look_at(store: Path) -> None:
    tierfs("ledger", "create", "topic", "--id", 8, store=store)
    assert [one["state"] for one in verify(store)[1]] == ["ok", "local"]


@pytest.mark.parametrize("read", [1, 2])
def test_a_wrong_byte_on_the_wire_is_no_damage(store: Path, read: int) -> None:
    """In the index or in the entries."""
    with open_store(store) as opened:
        cold = ScriptedStorage(opened.storage_of(LOCATION))
        opened.storage_of = lambda _: cold  # type: ignore[method-assign]
        cold.damage(30, of="-ledger-7", on=read)
        verifier = LedgerVerifier(opened, Meter())
        (result,) = verifier.run(verifier.find(""))
        assert (result.error, result.warnings.count) == (None, 0)

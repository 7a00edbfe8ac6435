"""Adopting the streaming form, whose objects hold several ledgers or parts of one, and the first PIP's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.stores import TestStore, assert_layout, open_test_store
from tests.tiering.adoption import foreign
from tests.tiering.adoption.adopting import planned, read, run, states
from tests.tiering.adoption.planned import left_out, refused
from tests.tiering.adoption.pulsar import MAGIC, TOPIC, in_files, in_first_form, in_memory, offloaded, streamed
from tierfs.base.words.types import PayloadEncoding
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering.adoption import pulsar as planning
from tierfs.tiering.adoption.adopt import State

SEVEN, EIGHT = f"in/{TOPIC}/00000000000000000007", f"in/{TOPIC}/00000000000000000008"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.cold_work().publish()
        yield opened


def test_two_ledgers_in_one_object_whose_blocks_alternate(store: TestStore) -> None:
    blocks = [(7, 0, [b"a", b"", b"bc"]), (8, 0, [b"x" * 100]), (7, 3, [b"d"]), (8, 1, [b"y", b"z"])]
    theirs = in_memory(streamed(1, blocks, {7: 4, 8: 3}))
    assert states(run(store, theirs)) == [State.ADOPTED] * 2
    assert read(store, theirs, SEVEN) == [b"a", b"", b"bc", b"d"]
    assert read(store, theirs, EIGHT) == [b"x" * 100, b"y", b"z"]
    assert states(run(store, theirs)) == [State.ALREADY] * 2


def test_a_ledger_in_several_objects_is_read_in_its_order(store: TestStore) -> None:
    first = streamed(1, [(7, 0, [b"a", b"b"]), (7, 2, [b""])], {7: 3})
    second = streamed(2, [(7, 3, [b""]), (7, 4, [b""])], {7: 5})
    third = streamed(3, [(7, 5, [b"c" * 90]), (7, 6, [b"d", b"e"])], {7: 8})
    theirs = in_memory(third, first, second)
    assert states(run(store, theirs)) == [State.ADOPTED]
    assert read(store, theirs, SEVEN) == [b"a", b"b", b"", b"", b"", b"c" * 90, b"d", b"e"]
    assert_layout(store, SEVEN, local=[], cold=[2, 92])  # the second has no bytes


def test_a_part_that_is_missing_refuses_the_ledger(store: TestStore) -> None:
    blocks = [(7, 0, [b"a"]), (7, 1, [b"b"]), (7, 3, [b"d"])]
    parts = [streamed(number, [block], {7: 4}) for number, block in enumerate(blocks)]
    for some, says in (
        ([parts[0], parts[2]], "entries 1 to 2 are in none of its objects"),
        ([parts[1], parts[2]], "entry 0 is in none of its objects"),
        ([parts[0], parts[1]], "2 of 4 entries are not in its object, from entry 2 on"),
    ):
        (outcome,) = run(store, in_memory(*some))
        assert (outcome.state, says in str(outcome.error)) == (State.FAILED, True), outcome.error


def test_parts_that_overlap_count_up_to_the_next_one(store: TestStore) -> None:
    first = streamed(1, [(7, 0, [b"a", b"b", b"cut"])], {7: 3})
    second = streamed(2, [(7, 2, [b"c", b"d"])], {7: 4})
    theirs = in_memory(first, second)
    assert states(run(store, theirs)) == [State.ADOPTED]
    assert read(store, theirs, SEVEN) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("shift", [1, 12, 30, 128, 140])
def test_blocks_that_lie_elsewhere_than_the_index_says_end_with_an_error(store: TestStore, shift: int) -> None:
    blocks = [(7, 0, [b"x" * 50, b"a"]), (7, 2, [b"y" * 60]), (7, 3, [b"z" * 99])]
    (outcome,) = run(store, in_memory(streamed(1, blocks, {7: 4}, shift=shift)), accept_loss=True)
    assert (outcome.state, type(outcome.error).__name__) == (State.FAILED, "DataLoss")


def test_two_forms_of_a_ledger_are_not_mixed(store: TestStore) -> None:
    whole, part = offloaded([b"whole"]), streamed(2, [(7, 0, [b"part"])], {7: 1})
    theirs = in_memory(whole, part)
    assert left_out(planned(theirs)) == {part.key}
    run(store, theirs)
    assert read(store, theirs, SEVEN) == [b"whole"]


def test_an_index_of_too_many_ledgers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MAX_LEDGERS_PER_INDEX", 3)
    many = streamed(1, [(number, 0, [b"x"]) for number in range(4)], dict.fromkeys(range(4), 1))
    assert refused(planned(in_memory(many))) == {f"{many.key}-index": "DataLoss"}


def test_the_first_form_is_read_with_its_magic_words_only(store: TestStore) -> None:
    payloads = [b"first", b"", b"x" * 200, *(b"%d" % number for number in range(50))]
    theirs = in_memory(in_first_form(payloads), offloaded([b"other"], 8))
    (left,) = planned(theirs).left_out
    assert (left.what, "--magic" in left.why) == (in_first_form(payloads).key, True)
    assert states(run(store, theirs, magic=MAGIC)) == [State.ADOPTED] * 2
    assert read(store, theirs, SEVEN) == payloads
    with store.metadata.read() as txn:
        encodings = {holder.name: holder.encoding for _, holder in txn.scan(OBJECTS)}
    assert encodings[in_first_form(payloads).key] is PayloadEncoding.FIRST_BLOCK
    assert states(run(store, theirs, magic=MAGIC)) == [State.ALREADY] * 2


def test_magic_words_are_typed_in_hexadecimal(tmp_path: Path) -> None:
    theirs = foreign.write_files(tmp_path / "theirs", in_files(in_first_form([b"a", b"bc"])))
    tierfs("-q", "init", store=tmp_path / "store")
    adopt = ("adopt", "--as", "pulsar", theirs, "--into", "in")
    typed = f"{MAGIC.index.hex()}:{MAGIC.block.hex()}"
    assert tierfs("-q", *adopt, "--magic", typed, "--json", store=tmp_path / "store").json["segments"][0]["length"] == 3
    assert foreign.cat(tmp_path / "store", SEVEN) == b"abc"
    for bad in ("", "zz", "494e4458", "494e4458:42", ":"):
        done = tierfs(*adopt, "--magic", bad, store=tmp_path / "store", check=False)
        assert (done.code, "INDEX:BLOCK" in done.err or "four bytes" in done.err) == (2, True), done

"""tierfs ledger export: files with the objects of ledgers, which read back as the same entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Done, new_store, tierfs
from tests.engine.ledger import independent
from tests.engine.ledger.message_entries import batch, entry, in_batch, metadata
from tests.engine.ledger.pulsar_goldens import PULSAR

ENTRIES = [b"first", b"", b"x" * 300, b"", *(b"%d" % number for number in range(30)), b"last"]
MAGIC = "494e4458:424c434b"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return new_store(tmp_path)


def ledger(store: Path, payloads: Sequence[bytes] = ENTRIES, ledger_id: int = 7, *, close: bool = True) -> str:
    """Create a ledger with these entries."""
    name = tierfs("ledger", "create", "a topic/ä", "--id", ledger_id, store=store).out.strip()
    files = []
    for number, payload in enumerate(payloads):
        files.append(store.parent / f"entry-{number}")
        files[-1].write_bytes(payload)
    if files:
        tierfs("ledger", "append", name, *files, store=store)
    if close:
        tierfs("-q", "seal", name, store=store)
    return name


def export(store: Path, *words: object, check: bool = True) -> Done:
    return tierfs("--json", "ledger", "export", *words, store=store, check=check)


def told(done: Done) -> list[tuple[str, str, bool]]:
    lines = [json.loads(line) for line in done.out.splitlines()]
    return [(one["segment"], one["state"], one["copied"]) for one in lines if "segment" in one]


def keys(directory: Path) -> dict[str, Path]:
    """Return the files of the only exported ledger, by kind."""
    (data,) = (path for path in directory.iterdir() if path.name[-5:] != ".json" and "-index" not in path.name)
    return {"data": data, "index": data.with_name(f"{data.name}-index"), "json": data.with_name(f"{data.name}.json")}


def read(store: Path, name: str) -> list[dict[str, Any]]:
    lines = tierfs("ledger", "read", name, "--json", store=store).out.splitlines()
    return [json.loads(line) for line in lines]


def adopted(store: Path, directory: Path, *words: object) -> list[str]:
    """Adopt an export; return the names of its segments."""
    done = tierfs("-q", "adopt", "--as", "pulsar", directory, "--into", "back", *words, "--json", store=store)
    return [one["segment"] for one in done.json["segments"]]


@pytest.mark.parametrize(
    ("cold", "words", "copied"),
    [(False, ("--block-size", 500), False), (True, (), True), (True, ("--block-size", 500), False)],
    ids=["local", "cold and copied", "cold and encoded anew"],
)
def test_a_ledger_comes_back_entry_by_entry(
    store: Path, tmp_path: Path, cold: bool, words: tuple[object, ...], copied: bool
) -> None:
    name, out = ledger(store), tmp_path / "new" / "out"
    if cold:
        tierfs("-q", "offload", store=store)
        tierfs("-q", "evict", "--force", store=store)
    assert told(export(store, "a topic", out, *words)) == [(name, "exported", copied)]
    files = keys(out)
    assert independent.decode_ledger(files["index"].read_bytes(), files["data"].read_bytes()) == ENTRIES
    said = json.loads(files["json"].read_bytes())
    assert (said["managedledgername"], said["role"]) == ("a%20topic/%C3%A4", "data")
    for path in (files["data"], files["index"]) if copied else ():
        assert path.read_bytes() == (tmp_path / "cold" / path.name).read_bytes(), "byte for byte"
    (back,) = adopted(store, out)
    assert back == f"back/{name}"
    assert read(store, back) == read(store, name)


def test_a_local_ledger_is_encoded_as_offload_does(store: Path, tmp_path: Path) -> None:
    name = ledger(store)
    export(store, name, tmp_path / "local")
    tierfs("-q", "offload", store=store)
    export(store, name, tmp_path / "cold-form")
    local, cold = keys(tmp_path / "local"), keys(tmp_path / "cold-form")
    assert local["data"].read_bytes() == cold["data"].read_bytes()
    assert local["index"].read_bytes() == cold["index"].read_bytes()


def test_the_first_form_is_one_object(store: Path, tmp_path: Path) -> None:
    name, out = ledger(store), tmp_path / "out"
    export(store, name, out, "--first-form", MAGIC, "--block-size", 400)
    (data,) = (path for path in out.iterdir() if not path.name.endswith(".json"))
    assert independent.decode_single_object(data.read_bytes(), b"INDX", b"BLCK") == ENTRIES
    (back,) = adopted(store, out, "--magic", MAGIC)
    assert read(store, back) == read(store, name)


def test_batches_become_entries(store: Path, tmp_path: Path) -> None:
    encrypted = entry(metadata((13, b"\x0a\x03key")), b"secret")
    of_two = batch(in_batch(b"one", (2, b"k1")), in_batch(b"two", (8, 99)))
    name, out = ledger(store, [entry(metadata(), b"alone"), of_two, encrypted, b"nothing of Pulsar's"]), tmp_path / "o"
    export(store, name, out, "--transform", "unbatch")
    assert json.loads(keys(out)["json"].read_bytes())["tierfs-transform"] == "unbatch"
    (back,) = adopted(store, out)
    entries = independent.decode_ledger(keys(out)["index"].read_bytes(), keys(out)["data"].read_bytes())
    assert (len(entries), entries[0], entries[3], entries[4]) == (
        5,
        entry(metadata(), b"alone"),
        encrypted,
        b"nothing of Pulsar's",
    )
    messages = [
        json.loads(line)
        for line in tierfs("ledger", "read", back, "--to", 3, "--messages", store=store).out.splitlines()
    ]
    assert [(one["payload"], one.get("key"), one["sequence_id"]) for one in messages] == [
        ("alone", None, 7),
        ("one", "k1", 7),
        ("two", None, 99),
    ]


def test_a_policy_transforms_the_ledgers_below_it_unless_the_command_says_otherwise(
    store: Path, tmp_path: Path
) -> None:
    of_two = batch(in_batch(b"one", (2, b"k1")), in_batch(b"two", (8, 99)))
    name = ledger(store, [of_two])
    other = ledger(store, [of_two], 8)
    tierfs("config", name, "transform=unbatch", store=store)
    tierfs("-q", "offload", store=store)
    export(store, name, tmp_path / "by policy")
    export(store, name, tmp_path / "by option", "--transform", "unbatch")
    assert [path.name for path in (tmp_path / "by policy").iterdir()] == [
        path.name for path in (tmp_path / "by option").iterdir()
    ]
    for out, words, number in (
        (tmp_path / "by policy", (name,), 2),
        (tmp_path / "whole", (name, "--transform", "off"), 1),
        (tmp_path / "other", (other,), 1),
    ):
        tierfs("ledger", "export", words[0], out, *words[1:], store=store)
        files = keys(out)
        assert len(independent.decode_ledger(files["index"].read_bytes(), files["data"].read_bytes())) == number
        assert ("tierfs-transform" in json.loads(files["json"].read_bytes())) is (number == 2)


def test_a_policy_names_a_transform_that_is_installed(store: Path) -> None:
    refused = tierfs("config", "/", "transform=unbach", store=store, check=False)
    assert (refused.code, "unknown transform 'unbach'" in refused.err) == (2, True)
    assert "known transforms: unbatch" in refused.err
    tierfs("config", "/", "transform=unbatch", store=store)
    tierfs("config", "/", "transform=off", store=store)


@pytest.mark.parametrize("directory", ["whole", "streaming"])
def test_what_pulsar_wrote_is_exported_as_it_is(store: Path, tmp_path: Path, directory: str) -> None:
    adopted(store, PULSAR / directory)
    export(store, "back", tmp_path / "out")
    theirs = {path.name: path for path in (PULSAR / directory).iterdir()}
    found = {path.name: path for path in (tmp_path / "out").iterdir()}
    # Ledger 23 has no bytes, so that it was adopted without an object: it is encoded anew.
    assert {name.rpartition("-ledger-")[2][:2] for name in found.keys() - theirs.keys()} <= {"23"}
    assert theirs.keys() <= found.keys()
    for path in (found[name] for name in theirs):
        if path.name.endswith(".json"):
            assert json.loads(path.read_bytes()) == json.loads(theirs[path.name].read_bytes())["metadata"]
        else:
            assert path.read_bytes() == theirs[path.name].read_bytes()

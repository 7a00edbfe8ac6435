"""The read priority in force, and its origin: the same by every face, whichever place sets it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from tests import verbs
from tests.commands import tierfs
from tests.faces.fsspec.conftest import make_cold
from tests.mount.conftest import Mount, append, mount
from tests.reading.cache.cache_blocks import size_for
from tierfs.app import store as app
from tierfs.app.fill_cache import CacheFiller
from tierfs.app.setup.create import init_store
from tierfs.base.options.precedence import Effective
from tierfs.base.options.settings import default_text
from tierfs.base.words.types import ReadPriority
from tierfs.faces.fsspec import TierfsFileSystem
from tierfs.pipeline.reader.selection import Pinner, Selection, Tail, select
from tierfs.tiering.planner import Planner
from tierfs.tiering.snapshot import Snapshots

__all__ = ["mount", "store"]

NAME = "a/s"

Answer = tuple[str, str]
"""A read priority, and its origin."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One more place that sets a read priority, which is stronger than all before it."""

    origin: str
    value: str
    settings: str = ""
    """A line of `store.toml`."""
    path: str | None = None
    """A directory or segment with a policy."""
    faces: frozenset[str] | None = None
    """The faces that have this place; None: all have."""


READS = frozenset({"reader", "scan", "fsspec"})
MOUNTS = frozenset({"warm-up of a mount"})

STAGES = (
    Stage("built-in", "local-first"),
    Stage("setting read.priority", "local-only", settings='priority = "local-only"'),
    Stage("directory /", "local-first", path=""),
    Stage("directory a", "offloaded-only", path="a"),
    Stage("segment a/s", "local-first", path=NAME),
    Stage("setting read.override_priority", "local-only", settings='override_priority = "local-only"'),
    Stage("mount option", "offloaded-first", faces=MOUNTS),
    Stage("call", "local-first", faces=READS),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    """A new store, whose one segment is in both tiers."""
    init_store(tmp_path / "store")
    (tmp_path / "store" / "store.toml").write_text(f"[read]\ncache_bytes = {size_for(100)}\n")
    with app.open_store(tmp_path / "store") as opened:
        append(opened, NAME, b"abc", seal=True)
        verbs.offload(opened)
        yield opened


def said(found: Effective[ReadPriority]) -> Answer:
    return found.value.value, str(found.origin)


def by_reader(store: app.Store, given: Mapping[str, ReadPriority | None]) -> Answer:
    async def opened() -> Answer:
        async with store.reader() as reader:
            handle = reader.open(segment_id(store), priority=given["call"])
            handle.close()
            return said(handle.priority)

    return trio.run(opened)


def segment_id(store: app.Store) -> Any:
    with store.metadata.read() as txn:
        return next(segment.id for _, segment in select(txn, Selection((NAME,))))


def by_info(store: app.Store, _: Mapping[str, ReadPriority | None]) -> Answer:
    found = tierfs("info", NAME, "--json", store=store.path).json
    return found["read_priority"], found["read_priority_origin"]


def by_config(store: app.Store, _: Mapping[str, ReadPriority | None]) -> Answer:
    found = tierfs("-q", "config", NAME, "--json", store=store.path).json["policy"]["read_priority"]
    name = found["set_on"]
    return found["value"], found["origin"] if name is None else f"{found['origin']} {name or '/'}"


def by_scan(store: app.Store, given: Mapping[str, ReadPriority | None]) -> Answer:
    with store.metadata.read() as txn:
        pinner = Pinner(txn, given["call"], Tail.LOCAL)
        ((path, segment),) = select(txn, Selection((NAME,)))
        return said(pinner.pin(path, segment).priority)


def by_fsspec(store: app.Store, given: Mapping[str, ReadPriority | None]) -> Answer:
    fs = TierfsFileSystem(store=store.path, read_priority=given["call"], skip_instance_cache=True)
    try:
        (listed,) = fs.ls("a")
        found = fs.info(NAME)
        assert listed["read_priority_origin"] == found["read_priority_origin"]
        return found["read_priority"], found["read_priority_origin"]
    finally:
        fs.close()


def by_warm_up(store: app.Store, given: Mapping[str, ReadPriority | None]) -> Answer:
    cache = store.reader(cached=True).cache
    assert cache is not None
    with closing(cache):
        filler = CacheFiller(store, cache, store.path / "cache", mount_option=lambda: given["mount option"])
        (target,) = filler.targets([NAME], as_read=True)
        return said(target.priority)


FACES: Mapping[str, Callable[[app.Store, Mapping[str, ReadPriority | None]], Answer]] = {
    "reader": by_reader,
    "info": by_info,
    "config": by_config,
    "scan": by_scan,
    "fsspec": by_fsspec,
    "warm-up of a mount": by_warm_up,
}


def set_up(path: Path, stages: tuple[Stage, ...]) -> None:
    lines = [stage.settings for stage in stages if stage.settings]
    file = path / "store.toml"
    before = file.read_text()
    if before == default_text():
        before = ""  # its sections are there already, and a second one of a name is refused
    file.write_text(before + "".join(f"{line}\n" for line in lines))
    for stage in stages:
        if stage.path is not None:
            tierfs("config", stage.path, f"read_priority={stage.value}", store=path)


@pytest.mark.parametrize("face", FACES)
def test_every_face_names_the_same_priority_and_origin(store: app.Store, face: str) -> None:
    for last, stage in enumerate(STAGES):
        set_up(store.path, (stage,))
        check_answers(store, face, STAGES[: last + 1])


def check_answers(store: app.Store, face: str, stages: tuple[Stage, ...]) -> None:
    given = {
        kind: next((ReadPriority(stage.value) for stage in stages if stage.origin == kind), None)
        for kind in ("call", "mount option")
    }
    strongest = next(stage for stage in reversed(stages) if stage.faces is None or face in stage.faces)
    with app.open_store(store.path) as opened:
        assert FACES[face](opened, given) == (strongest.value, strongest.origin)
        planner = Planner()
        Snapshots(opened.metadata, planner).refresh()
        (view,) = planner.views
    common = next(stage for stage in reversed(stages) if stage.faces is None)
    assert view.policy.read_priority == common.value
    assert view.keeps_local is (common.value == "local-only")


MAKES_A_STORE = {
    "init": "init --cold-dir cold",
    "init --ack": "init --ack cold",
    "recover": "recover --cold-dir cold --yes",
    "recover --from-objects": "recover --from-objects --cold-dir cold --yes",
    "replica": "replica --cold-dir cold",
    "restore": "restore backup",
}


@pytest.mark.parametrize("verb", MAKES_A_STORE)
def test_a_new_store_has_no_policy_that_nobody_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """So that a setting of the host decides."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cold").mkdir()
    if not verb.startswith("init"):
        tierfs("-q", "init", "--cold-dir", "cold", store=tmp_path / "before")
        tierfs("append", "--seal", NAME, store=tmp_path / "before", stdin=b"abc")
        tierfs("-q", "offload", store=tmp_path / "before")
        tierfs("-q", "backup", "backup", store=tmp_path / "before")
    if verb == "recover --from-objects":
        shutil.rmtree(tmp_path / "cold/journal")
    tierfs("-q", *MAKES_A_STORE[verb].split(), store=tmp_path / "store")
    tierfs("-q", "config", "read.priority=local-only", store=tmp_path / "store")
    held = tierfs("-q", "config", "/", "--json", store=tmp_path / "store").json["policy"]
    origins = {name: policy["origin"] for name, policy in held.items() if policy["origin"] != "built-in"}
    assert origins == {"read_priority": "setting", **({"ack": "directory"} if verb == "init --ack" else {})}


@pytest.mark.mount
def test_a_mount_reads_as_its_attribute_says(store: app.Store, mount: Mount) -> None:
    set_up(store.path, STAGES[:5])
    make_cold(store, NAME)

    def answer(path: Path) -> Answer:
        names = ("read_priority", "read_priority_origin")
        value, origin = (os.getxattr(path / NAME, f"user.tierfs.{name}").decode() for name in names)
        return value, origin

    assert answer(mount("xattr").path) == ("local-first", "segment a/s")
    set_up(store.path, STAGES[5:6])
    overridden = mount("xattr")
    assert answer(overridden.path) == ("local-only", "setting read.override_priority")
    with pytest.raises(OSError, match="Input/output error"):
        (overridden.path / NAME).read_bytes()
    by_option = mount("xattr,read_priority=offloaded-first").path
    assert answer(by_option) == ("offloaded-first", "mount option")
    assert (by_option / NAME).read_bytes() == b"abc"

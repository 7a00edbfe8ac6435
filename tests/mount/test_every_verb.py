"""Every verb that takes a name: in a bind mount, below another filesystem, in each locale, with a store made anew.

It acts on the segment that is meant, or is refused; all other segments stay as they are. A verb that is in neither
table fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.commands import Done, tierfs
from tests.faces.cli.test_locales import LOCALES, made, variables
from tests.mount.conftest import append, opened_store, serving
from tests.mount.test_places import bound, needs_root
from tierfs.app import store as app
from tierfs.base.words.types import ROOT_DIRECTORY, EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.faces.cli.main import cli

__all__ = ["made"]

pytestmark = [pytest.mark.mount, pytest.mark.slow, pytest.mark.xdist_group(__name__)]

ANOTHER_WAY = pytest.mark.whole
"""To the same directory, which is found before the verb is known: test_places.py has each way."""

VERBS = {
    "append": "append {name}",
    "seal": "seal {name}",
    "unseal": "unseal {name}",
    "concat": "concat --yes {name} {more}",
    "trim": "trim --yes {name} --before 2",
    "ls": "ls {name}",
    "info": "info {name}",
    "du": "du {name}",
    "cat": "cat {name}",
    "offload": "offload {name}",
    "evict": "evict {name}",
    "consolidate": "consolidate {name}",
    "archive": "archive {name} --class GLACIER_IR",
    "thaw": "thaw {name}",
    "warmup": "warmup {name}",
    "check": "check {name}",
    "config": "config {path} chunk_age=9min",
    "backup": "backup --to-bucket {name}",
    "adopt": "adopt {files} --into {name}.d",
    "ingest": "ingest {files}/f --into {name}.d",
    "ledger create": "ledger create {name}.t --id 1",
    "ledger append": "ledger append {name}.t/1",
    "ledger ls": "ledger ls {directory}",
    "ledger read": "ledger read {name}",
    "ledger export": "ledger export {name} {files}/out",
    "ledger verify": "ledger verify {name}",
    "ledger status": "ledger status {name}",
    "ledger terminate": "ledger terminate {name}",
    "pipeline report": "pipeline report {name}",
    "rm": "rm --now --yes {name}",
    "clone": "clone {name} {name}.clone",
    "mv": "mv {name} {name}.renamed",
    "mkdir": "mkdir {name}.d",
    "tree": "tree {directory}",
    "diff": "diff {name} {name}",
    "sha256sum": "sha256sum {name}",
    "md5sum": "md5sum {name}",
    "follow": "follow {files}/f --into {name}.d --once",
}
"""The words of each; `{name}` is a segment of its own, `{path}` the same where a plain word is no path."""

OTHERS = {
    **dict.fromkeys(
        ("pipeline scrub", "pipeline export", "pipeline table"),
        "its names are found as those of `du`, and it needs Spark",
    ),
    **dict.fromkeys(("pipeline ingest", "pipeline rebuild"), "it needs Spark, and its names are found as `ingest`'s"),
    "restore": "names what was removed, which no mount shows",
    "inspect": "takes objects, or files",
    **dict.fromkeys(("mount", "umount", "top", "doctor"), "takes a mount point, which is no segment"),
    **dict.fromkeys(("init", "recover", "replica", "move"), "takes places of the cold tier"),
    **dict.fromkeys(("status", "report", "daemon", "admin", "gc", "completion", "standby"), "takes no name"),
}

NOT_FOR_BYTES = {"adopt", "archive", "warmup"} | {
    f"ledger {verb}" for verb in ("append", "read", "export", "verify", "status", "terminate")
}
"""Refused, by the segment's name or for what the test has: no ledger, no foreign object, no class."""


def all_verbs(group: click.Group, path: str = "") -> Iterator[str]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from all_verbs(command, f"{path}{name} ")
        else:
            yield path + name


def test_every_verb_is_tried_or_takes_no_name() -> None:
    assert sorted(all_verbs(cli)) == sorted([*VERBS, *OTHERS])


def own(verb: str) -> str:
    return f"of-{verb.replace(' ', '-')}-ü日"


def words_of(verb: str, files: Path, at: Path | None = None) -> list[str]:
    """The words of a verb: names of the store, or paths in the directory `at`."""
    prefix, directory = ("", "/") if at is None else (f"{at}/", str(at))
    name = prefix + own(verb)
    given = {"name": name.removeprefix("./"), "path": name, "more": f"{prefix}more", "directory": directory}
    return [word.format(files=files, **given) for word in VERBS[verb].split(" ")]


def fill(store: app.Store, directory: str = "") -> None:
    """Give each verb a segment of its own in a directory, and one to concatenate."""
    for verb in VERBS:
        append(store, f"{directory}{own(verb)}", f"in /{directory}".encode(), seal=verb == "unseal")
    append(store, f"{directory}more", b"more", seal=True)


Rows = list[tuple[str, SegmentRecord | int]]


def at_the_root(store: app.Store) -> Rows:
    """What the store's root has, but for what is in its directories."""
    with store.metadata.read() as txn:
        return [
            (entry.name, directories.segment_by_name(txn, entry.name) if entry.kind is EntryKind.SEGMENT else entry.id)
            for entry in directories.entries(txn, ROOT_DIRECTORY)
        ]


def all_segments(store: app.Store) -> Rows:
    with store.metadata.read() as txn:
        root = directories.find(txn, "")
        assert root is not None
        return list(directories.segments_below(txn, root, ""))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files").resolve()
    (directory / "f").write_bytes(b"file")
    return directory


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[app.Store, Path]]:
    """A store with each verb's segment at its root, in `web` and in `over`, and its mount.

    A bind mount of `web` is at `bound`, and a tmpfs with files of the same names over `over`.
    """
    root = tmp_path_factory.mktemp("twins").resolve()
    for name in ("mnt", "bound"):
        (root / name).mkdir()
    with opened_store(root / "store") as store:
        for directory in ("", "web/", "over/"):
            fill(store, directory)
        with (
            serving(store.path, root / "mnt"),
            bound("--bind", root / "mnt/web", root / "bound"),
            bound("-t", "tmpfs", "none", root / "mnt/over"),
        ):
            for verb in VERBS:
                (root / "mnt/over" / own(verb)).write_text("of the tmpfs")
            yield store, root


@needs_root
@pytest.mark.parametrize("verb", VERBS)
def test_in_a_bind_mount_nothing_outside_of_it_is_changed(
    twins: tuple[app.Store, Path], files: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    store, root = twins
    monkeypatch.chdir(root / "bound")
    before = at_the_root(store)
    done = tierfs("--json", *words_of(verb, files, Path()), check=False, stdin=b"more")
    assert at_the_root(store) == before
    assert done.code in (0, 2, 3), done
    assert done.code == 0 or verb in NOT_FOR_BYTES, done


@needs_root
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", [pytest.param("absolute", marks=ANOTHER_WAY), "relative", "store"])
def test_a_verb_below_another_filesystem_is_refused(
    twins: tuple[app.Store, Path], files: Path, monkeypatch: pytest.MonkeyPatch, verb: str, how: str
) -> None:
    store, root = twins
    at = root / "mnt/over" if how == "absolute" else Path("mnt/over")
    monkeypatch.chdir(root)
    before = all_segments(store)
    named = store.path if how == "store" else None
    done = tierfs(*words_of(verb, files, at), store=named, check=False, stdin=b"more")
    require_refused(done, store, before)
    assert (root / "mnt/over" / own(verb)).read_text() == "of the tmpfs"


def require_refused(done: Done, store: app.Store, before: Rows) -> None:
    assert all_segments(store) == before
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.count("\n") <= 2, done


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[app.Store, Path]]:
    """A store that was made anew, with the same names, while the one before was mounted; and that mount."""
    root = tmp_path_factory.mktemp("replaced").resolve()
    (root / "mnt").mkdir()
    with opened_store(root / "store") as old:
        fill(old)
        with serving(old.path, root / "mnt"):
            old.close()
            shutil.rmtree(root / "store")
            with opened_store(root / "store") as new:
                fill(new)
                yield new, root


@needs_root
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", ["by path", pytest.param("in the mount", marks=ANOTHER_WAY), "by name"])
def test_a_mount_of_the_store_before_names_no_segment_of_the_one_that_is_there(
    replaced: tuple[app.Store, Path], files: Path, monkeypatch: pytest.MonkeyPatch, verb: str, how: str
) -> None:
    store, root = replaced
    before = all_segments(store)
    monkeypatch.chdir(root / "mnt" if how == "in the mount" else root)
    at = {"by path": root / "mnt", "in the mount": Path(), "by name": None}[how]
    done = tierfs(*words_of(verb, files, at), store=store.path if how == "by name" else None, check=False)
    if how == "by name":  # the present store's segment
        assert done.code == 0 or verb in NOT_FOR_BYTES, done
        others = [row for row in all_segments(store) if not row[0].startswith((own(verb), "more"))]
        assert others == [row for row in before if not row[0].startswith((own(verb), "more"))]
    else:
        require_refused(done, store, before)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, files: Path) -> list[tuple[str, int, bool]]:
    """What each verb makes of its segment in this process."""
    path = tmp_path_factory.mktemp("expected") / "store"
    with opened_store(path) as store:
        fill(store)
    for verb in VERBS:
        done = tierfs(*words_of(verb, files), store=path, check=False, stdin=b"more")
        assert done.code == 0 or verb in NOT_FOR_BYTES, done
    return seen_in(path)


def seen_in(path: Path) -> list[tuple[str, int, bool]]:
    with app.open_store(path) as store:
        return [(name, record.length - record.start_offset, record.sealed) for name, record in segments_in(store)]


def segments_in(store: app.Store) -> Iterator[tuple[str, SegmentRecord]]:
    with store.metadata.read() as txn:
        root = directories.find(txn, "")
        assert root is not None
        yield from directories.segments_below(txn, root, "")


@pytest.mark.whole  # the locale is dealt with before the verb is known, as test_locales shows by some
@pytest.mark.parametrize("locale", LOCALES)
def test_a_name_is_the_same_segment_in_each_locale(
    made: Path, tmp_path: Path, files: Path, expected: list[tuple[str, int, bool]], locale: str
) -> None:
    """By interpreters of their own, whose locale decides how they take the bytes of a word."""
    with opened_store(tmp_path / "store") as store:
        fill(store)
    env = variables(made, locale, TIERFS_STORE=str(tmp_path / "store"))
    for verb in VERBS:
        words = [sys.executable, "-m", "tierfs", *words_of(verb, files)]
        done = subprocess.run(
            [os.fsencode(word) for word in words], env=env, input=b"more", capture_output=True, check=False, timeout=100
        )
        assert done.returncode == 0 or verb in NOT_FOR_BYTES, done
    assert seen_in(tmp_path / "store") == expected

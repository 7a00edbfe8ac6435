"""Every command that may take over a second shows its progress, up to the last item; the others are named here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import click
import pytest
from click.testing import CliRunner

from tests.tiering.adoption.foreign import write_files
from tests.tiering.adoption.test_pravega import S, chunk, header
from tests.tiering.adoption.test_rocketmq import posix
from tierfs.base.bytes.progress import Progress
from tierfs.faces.cli import progress
from tierfs.faces.cli.main import cli
from tierfs.faces.cli.session import Session

FILES = {f"{name}.log": name.encode() * 1800 for name in ("a", "b", "c")}
NOTHING_COUNTED = ""
COLD = (("ingest", "{files}", "--into", "d"), ("offload",))
LOCAL = COLD[:1]
LEDGERS = tuple(
    words
    for number in (1, 2)
    for name in (f"t/{number:020}",)
    for words in (
        ("ledger", "create", "t", "--id", str(number)),
        ("ledger", "append", name, "{files}/a.log"),
        ("seal", name),
    )
)


@dataclass(frozen=True, slots=True)
class Case:
    """A call of a command, and the items that it counts."""

    words: tuple[str, ...]
    noun: str
    items: int = 3
    before: Sequence[tuple[str, ...]] = ()


SHOWN = {
    "append": Case(("append", "s", "{files}/a.log"), "segment", 0),
    "ingest": Case(("ingest", "{files}", "--into", "d"), "file"),
    "rm": Case(("rm", "-r", "--now", "--yes", "d"), "deletion", before=LOCAL),
    "mkdir": Case(("mkdir", "e"), NOTHING_COUNTED),
    "mv": Case(("mv", "d", "e"), NOTHING_COUNTED, before=LOCAL),
    "restore": Case(("restore", "d"), NOTHING_COUNTED, before=(*LOCAL, ("rm", "-r", "--yes", "d"))),
    "concat": Case(("concat", "--yes", "new", "d/a.log"), NOTHING_COUNTED, before=(*LOCAL, ("append", "new"))),
    "clone": Case(("clone", "d/a.log", "new"), NOTHING_COUNTED, before=LOCAL),
    "trim": Case(("trim", "--yes", "d/a.log", "--before", "9"), NOTHING_COUNTED, before=LOCAL),
    "ls": Case(("ls", "d"), "name", before=LOCAL),
    "du": Case(("du",), "name", 4, LOCAL),
    "sha256sum": Case(("sha256sum", "d/a.log"), "segment", 1, LOCAL),
    "md5sum": Case(("md5sum", "d/a.log"), "segment", 1, LOCAL),
    "offload": Case(("offload",), "segment", before=LOCAL),
    "evict": Case(("evict",), "segment", before=COLD),
    "consolidate": Case(("consolidate",), "segment", before=COLD),
    "move": Case(("move", "--to", "{tmp}/other"), "object", 0, COLD),
    "warmup": Case(("warmup", "d"), "range", before=(*COLD, ("evict",))),
    "check": Case(("check", "--read"), "segment", before=COLD),
    "gc": Case(("gc",), "local file", before=COLD),
    "doctor": Case(("doctor",), NOTHING_COUNTED),
    "backup": Case(("backup", "{tmp}/dump"), "row", 0, LOCAL),
    "recover": Case(("--store", "{tmp}/new", "recover", "--cold-dir", "{cold}"), "segment", before=COLD),
    "replica": Case(("--store", "{tmp}/new", "replica", "--cold-dir", "{cold}"), "segment", before=COLD),
    "standby": Case(
        ("--store", "{tmp}/new", "standby", "--now", "--yes"),
        "segment",
        before=(*COLD, ("--store", "{tmp}/new", "replica", "--cold-dir", "{cold}")),
    ),
    "adopt": Case(("adopt", "{files}", "--into", "in"), "segment"),
    "ledger export": Case(("ledger", "export", "t", "{tmp}/out"), "ledger", 2, LEDGERS),
    "ledger verify": Case(("ledger", "verify", "t"), "ledger", 2, (*LEDGERS, ("offload", "t"))),
    "ledger ls": Case(("ledger", "ls"), "ledger", 2, LEDGERS),
    "pipeline report": Case(("pipeline", "report"), "segment", before=LOCAL),
}

MORE = {
    "check of segments": Case(("check", "/"), "segment", before=COLD),
    "offload of ledgers": Case(("offload", "t", "--before", "2:1"), "ledger", 2, LEDGERS),
    "trim of ledgers": Case(("trim", "--yes", "t", "--before", "2"), NOTHING_COUNTED, before=LEDGERS),
    "adopt of rocketmq": Case(("adopt", "--as", "rocketmq", "{tmp}/rocketmq", "--into", "in"), "segment", 1),
    "adopt of pravega": Case(("adopt", "--as", "pravega", "{tmp}/pravega", "--into", "in"), "segment", 1),
    "adopt of pulsar": Case(
        ("adopt", "--as", "pulsar", "{tmp}/out", "--into", "in"),
        "segment",
        2,
        (*LEDGERS, ("ledger", "export", "t", "{tmp}/out")),
    ),
    "restore of a store": Case(
        ("restore", "{tmp}/dump"),
        "object",
        before=(*LOCAL, ("backup", "{tmp}/dump"), ("aside", "{store}/metadata", "{tmp}")),
    ),
    "gc that deletes": Case(("gc", "--delete", "--grace", "0"), "cold object", 1, COLD),
    "backup of a segment": Case(("backup", "--to-bucket", "d/a.log"), "record", 0, COLD),
    "restore of a segment": Case(
        ("restore", "d/a.log"),
        "object",
        1,
        (*COLD, ("backup", "--to-bucket", "d/a.log"), ("rm", "--now", "--yes", "d/a.log")),
    ),
    "recover from objects": Case(
        ("--store", "{tmp}/new", "recover", "--cold-dir", "{cold}", "--from-objects", "--yes"), "segment", before=COLD
    ),
    "refresh of a replica": Case(
        ("--store", "{tmp}/new", "replica", "--refresh"),
        "journal object",
        1,
        (*LOCAL, ("--store", "{tmp}/new", "replica", "--cold-dir", "{cold}"), COLD[1]),
    ),
    "a dry run": Case(("evict", "--dry-run"), "segment", before=COLD),
}

OF_SPARK = {"pipeline ingest", "pipeline scrub", "pipeline export", "pipeline rebuild", "pipeline table"}
"""tests/pipeline/spark checks them: they count tasks."""

SILENT = {
    **dict.fromkeys(["init", "status", "info", "seal", "unseal"], "one segment or none: under a second"),
    **dict.fromkeys(["ledger create", "ledger terminate", "ledger status"], "the same"),
    "config": "one row, or one file",
    "archive": "a server with other classes; tests/tiering/archive has its lines",
    "thaw": "the same",
    "completion": "a text",
    "inspect": "a header, or an index of 16 MiB",
    "diff": "it ends at the first difference, and reads nothing of equal segments",
    **dict.fromkeys(["cat", "tree", "ledger read"], "the output shows it"),
    **dict.fromkeys(["mount", "umount", "daemon", "admin", "top", "follow"], "runs until it is ended"),
    "report": "rows of the metadata, and with --list a request for each 1000 objects",
    "ledger append": "takes as long as its input",
}


def leaves(group: click.Group, path: str = "") -> Iterator[str]:
    """Yield the full names of all commands."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield path + name


def test_every_command_shows_progress_or_says_why_not() -> None:
    listed = [*SHOWN, *OF_SPARK, *SILENT]
    assert sorted(listed) == sorted(leaves(cli))


class Noted:
    """Keeps what a command would show."""

    seen: list[Progress]

    def __init__(self, *_: object) -> None:
        self.show = Noted.seen.append

    def away(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> Noted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """The directories that words name."""
    write_files(tmp_path / "files", FILES)
    write_files(tmp_path / "rocketmq", {posix(0): b"mq" * 900})
    write_files(tmp_path / "pravega", {f"{S}$header": header((0, chunk(0))), chunk(0): b"hello"})
    (tmp_path / "cold").mkdir()
    (tmp_path / "other").mkdir()
    places = {name: str(tmp_path / name) for name in ("files", "cold", "store")} | {"tmp": str(tmp_path)}
    run(places, "init", "--cold-dir", "{cold}")
    run(places, "config", "read.cache_bytes=64MiB")
    return places


def run(places: dict[str, str], *words: str) -> None:
    words = tuple(word.format(**places) for word in words)
    if words[0] == "aside":  # no command: a file that is lost
        Path(words[1]).rename(Path(words[2], "moved"))
        return
    done = CliRunner().invoke(cli, words, env={"TIERFS_STORE": places["store"]})
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("case", [*SHOWN.values(), *MORE.values()], ids=[*SHOWN, *MORE])
def test_progress_goes_up_to_the_last_item(places: dict[str, str], case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in case.before:
        run(places, *words)
    monkeypatch.setattr(Noted, "seen", [], raising=False)
    monkeypatch.setattr(progress, "ProgressLine", Noted)
    monkeypatch.setattr(Session, "shows_progress", True)
    run(places, *case.words)
    of_stage = [shown for shown in Noted.seen if shown.noun == case.noun]
    assert of_stage, Noted.seen
    if case.noun == NOTHING_COUNTED:
        assert all(shown.item for shown in of_stage)
        return
    last = of_stage[-1]
    assert last.done_items == (case.items or last.done_items), last
    assert last.total_items in (0, last.done_items), last
    assert last.total_bytes in (0, last.done_bytes), last
    assert all(shown.item for shown in Noted.seen)


def test_quiet_and_json_show_nothing(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    run(places, *LOCAL[0])
    monkeypatch.setattr(Noted, "seen", [], raising=False)
    monkeypatch.setattr(progress, "ProgressLine", Noted)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    run(places, "check", "/", "-q")
    run(places, "check", "/", "--json")
    assert Noted.seen == []

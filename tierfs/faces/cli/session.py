"""Hold the global options, and print results, notes and warnings."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words import json_data, units
from tierfs.base.words.errors import InvalidRequest, TierfsError
from tierfs.base.words.names import hadoop_warning, printable
from tierfs.faces.cli.standard_streams import NAME, ClosedOutput, to_stderr

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.base.system.places import Mount

QUIET, NORMAL, VERBOSE, DEBUG = -1, 0, 1, 2
_LOG_LEVELS = {QUIET: logging.WARNING, NORMAL: logging.WARNING, VERBOSE: logging.INFO, DEBUG: logging.DEBUG}


def as_json(data: Any) -> str:
    """Return data as JSON, with records as objects."""
    return json.dumps(data, default=json_data.plain)


@dataclass
class Session:
    """One call of the command line."""

    store_path: Path | None = None
    """From --store, or else from TIERFS_STORE."""
    names_store: bool = False
    """Whether --store named it; a path in a mount of another store is then refused."""
    typed: list[str] = field(default_factory=list)
    """The paths and names among the arguments."""
    json: bool = False
    verbosity: int = NORMAL
    words: Sequence[str] = ()
    """The command line as it was typed, without the program's name."""
    printing: Callable[[], AbstractContextManager[None]] = nullcontext
    """Keeps the progress line away while a block prints or asks."""

    def command_with(self, option: str) -> str:
        """Return the command line as it was typed, with one more option, for a shell."""
        end = self.words.index("--") if "--" in self.words else len(self.words)  # behind it are no options
        return shlex.join(["tierfs", *self.words[:end], option, *self.words[end:]])

    def require_store_path(self) -> Path:
        """Return the store's directory: of --store, else of the mount that a path is in, else of TIERFS_STORE.

        Without any of them it is that of the mount around the working directory. Raises UsageError if there is none.
        """
        if not self.names_store and (mount := self._mount()) is not None:
            from tierfs.app.setup.typed import store_of

            return store_of(mount)
        if self.store_path is None:
            raise click.UsageError("no store given: use --store DIR or a path under its mount, or set TIERFS_STORE")
        return self.store_path

    @property
    def has_store(self) -> bool:
        """Whether a store was named, so that `require_store_path` returns one."""
        return self.store_path is not None or self._mount() is not None

    def _mount(self) -> Mount | None:
        """Return the mount that a path is in, or the working directory where nothing names a store."""
        from tierfs.base.system.places import is_path, place_of_typed

        # A bare name says nothing of the store: where TIERFS_STORE names one, it is a name there.
        paths = [text for text in self.typed if is_path(text)]
        if self.store_path is None:
            paths = [*(paths or self.typed), ""]
        place = next(filter(None, map(place_of_typed, paths)), None)
        return None if place is None else place.mount

    def open_store(self, *, looks: bool = False) -> Store:
        """Open the given store, perhaps only to look at it. Raises the errors of app.open_store.

        Raises InvalidRequest if a mount named it, and may be one of another store that is at the same path here.
        """
        path = self.require_store_path()
        from tierfs.app.store import open_store

        store = open_store(path, looks=looks)
        if not self.names_store and (mount := self._mount()) is not None:
            from tierfs.app.setup.typed import is_mount_of

            try:
                is_mount_of(store.path, store.metadata, mount)
            except BaseException:
                store.close()
                raise
        return store

    def result(self, data: Any, text: str) -> None:
        """Print a result: `data`, which may be or contain records, with --json, else `text`, with printable names."""
        with self.printing():
            click.echo(as_json(data) if self.json else text)

    def rows(self, data: Iterable[Any], lines: Iterable[str]) -> None:
        """Print a line for each row: an object of `data` with --json, else one of `lines`. Only one is iterated."""
        for line in map(as_json, data) if self.json else lines:
            click.echo(line)

    def done(self, data: Any, text: str) -> None:
        """Print a summary; --quiet and a closed output suppress it, as the exit code is enough then."""
        if (self.json or self.verbosity > QUIET) and not isinstance(sys.stdout, ClosedOutput):
            self.result(data, text)

    def require_output(self) -> None:
        """Raise InvalidRequest if the output is closed; for commands whose answer must not be lost."""
        if isinstance(sys.stdout, ClosedOutput):
            raise InvalidRequest(f"{NAME}: closed")

    def note(self, text: str) -> None:
        """Print a note to stderr; --quiet and --json suppress it."""
        if self.verbosity > QUIET and not self.json:
            with self.printing():
                to_stderr(printable(text))

    def note_unpublished(self, error: TierfsError | None) -> None:
        """Print why a change was not published to the bucket yet; nothing for None."""
        if error is not None:
            self.note(f"not published to the bucket yet; the mount, the daemon or the next command retries: {error}")

    def warn(self, text: str) -> None:
        """Print a warning to stderr; --quiet suppresses it."""
        if self.verbosity <= QUIET:
            return
        with self.printing():
            line = json.dumps({"warning": text}) if self.json else f"tierfs: warning: {printable(text)}"
            to_stderr(line, logging.WARNING)

    def warn_text(self, warnings: Iterable[str]) -> None:
        """Print the warnings of a result, which with --json has them itself."""
        if not self.json:
            for warning in warnings:
                self.warn(warning)

    def warn_of_names(self, segments: Iterable[str]) -> None:
        """Warn of segments with names that Hadoop and Spark cannot read."""
        unfit = [warning for segment in segments if (warning := hadoop_warning(segment))]
        self.warn_of_unfit(len(unfit), next(iter(unfit), ""))

    def warn_of_unfit(self, count: int, first: str) -> None:
        """Warn of so many names that Hadoop and Spark cannot read; `first` says what is wrong with the first one."""
        if count:
            self.warn(f"Hadoop and Spark cannot read {units.count(count, 'name')}, the first: {first}")

    @property
    def shows_progress(self) -> bool:
        """Whether a progress line is shown; a terminal without escape sequences could not erase it."""
        return not self.json and self.verbosity > QUIET and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def start_logging(self) -> None:
        """Send log records to stderr: warnings, and with -v and -vv more."""
        logger = logging.getLogger("tierfs")
        for handler in [handler for handler in logger.handlers if isinstance(handler, _ToTerminal)]:
            logger.removeHandler(handler)
        handler = _ToTerminal(self)
        handler.setLevel(_LOG_LEVELS[self.verbosity])
        logger.addHandler(handler)
        # Without -v the root logger's level counts, which a daemon sets for its log file.
        logger.setLevel(handler.level if self.verbosity > NORMAL else logging.NOTSET)


class _ToTerminal(logging.Handler):
    """Print log records like the warnings of commands."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record. Its caller goes on, also where it cannot be formatted."""
        try:
            self._print(record)
        except Exception:
            self.handleError(record)

    def _print(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._session.warn(record.getMessage())
        else:
            self._session.note(f"{record.name}: {record.getMessage()}")

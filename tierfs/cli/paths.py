"""Arguments that name segments and directories: what may be typed for one, and a verb that is done for several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from glob import escape
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tierfs.app.store import Store
from tierfs.cli import errors
from tierfs.cli.session import Session
from tierfs.errors import Conflict, DataLoss, InvalidRequest, NotFound
from tierfs.names import join, split

F = TypeVar("F", bound=Callable[..., None])

_OF_THE_PATH = (Conflict, DataLoss, InvalidRequest, NotFound)
"""Errors after which the next path may well succeed; of the others each path would tell the same again."""


class StoreName(click.ParamType[str]):
    """A name in the store, or a path under a mount, which names the store too."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Remember the text: the store is looked for only when it is opened."""
        if ctx is not None:
            ctx.ensure_object(Session).typed.append(value)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a name of the store that is named before it, or by TIERFS_STORE; paths are left to the shell."""
        from tierfs.metadata import directories
        from tierfs.system.mounts import is_path
        from tierfs.types import EntryKind

        if is_path(incomplete):
            return [CompletionItem(incomplete, type="file")]
        with ctx.ensure_object(Session).open_store(looks=True) as store, store.metadata.read() as txn:
            below = directories.matching(txn, f"{escape(incomplete)}*")
        return [CompletionItem(path + ("/" if entry.kind is EntryKind.DIRECTORY else "")) for path, entry in below]


_NAME = StoreName()


human_option = click.option("-h", "--human-readable", is_flag=True, expose_value=False, hidden=True)
"""Accepted out of habit: sizes are human-readable without it, and exact with --json."""


def path_argument(name: str, *, optional: bool = False, metavar: str | None = None) -> Callable[[F], F]:
    """Return a decorator for one name; without it, and `optional`, the whole store."""
    if optional:
        return click.argument(name, type=_NAME, metavar=metavar, default="")
    return click.argument(name, type=_NAME, metavar=metavar)


def paths_argument(name: str = "paths", *, optional: bool = False, metavar: str) -> Callable[[F], F]:
    """Return a decorator for several names; without any, and `optional`, the whole store."""

    def whole(ctx: click.Context, param: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
        return typed or ("",)

    return click.argument(
        name, nargs=-1, type=_NAME, required=not optional, metavar=metavar, callback=whole if optional else None
    )


def each(session: Session, store: Store, typed: Sequence[str], work: Callable[[str], None]) -> None:
    """Call `work` with each name that paths and patterns stand for, each once.

    A path that fails is reported and the next is tried, as by rm(1); the exit code is then that of the first failure.
    The error of a path that is alone is raised.
    """
    if len(typed) == 1 and len(alone := store.names_of(typed[0])) == 1:
        work(join(split(alone[0])))
        return
    failures: list[int] = []
    done: set[str] = set()
    for text in typed:
        try:
            wanted = [join(split(name)) for name in store.names_of(text)]
        except _OF_THE_PATH as exc:
            failures.append(errors.report(exc, session))
            continue
        for name in wanted:
            if name in done:
                continue
            done.add(name)
            try:
                work(name)
            except _OF_THE_PATH as exc:
                failures.append(errors.report(exc, session))
    if failures:
        raise click.exceptions.Exit(failures[0])

"""Define arguments that name segments and directories: what may be typed for one, and several in a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from glob import escape
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.names import join, split
from tierfs.faces.cli import errors
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.store import Store

F = TypeVar("F", bound=Callable[..., Any])

# Errors after which the next path may well succeed; of the others each path would tell the same again.
_OF_THE_PATH = (Conflict, DataLoss, InvalidRequest, NotFound)

# The paths of a command to which none was given.
WHOLE = ("",)


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
        from tierfs.base.system.places import is_path
        from tierfs.base.words.types import EntryKind
        from tierfs.engine.metadata import directories

        if is_path(incomplete):
            return [CompletionItem(incomplete, type="file")]
        with ctx.ensure_object(Session).open_store(looks=True) as store, store.metadata.read() as txn:
            below = directories.matching(txn, f"{escape(incomplete)}*")
        return [CompletionItem(path + ("/" if entry.kind is EntryKind.DIRECTORY else "")) for path, entry in below]


_NAME = StoreName()


def new_name(store: Store, source: str, target: str) -> tuple[str, str]:
    """Return the names in the store of what moves or is copied, and of where to, as both were typed."""
    from tierfs.base.system.places import is_path, place_of_typed

    old = store.segment_of_path(source)
    if old != source and not is_path(target) and place_of_typed(target) is not None:
        target = f"./{target}"  # beside a path under a mount it is one too, though nothing is there yet
    return join(split(old)), join(split(store.segment_of_path(target)))


def path_argument(name: str, *, optional: bool = False, metavar: str | None = None) -> Callable[[F], F]:
    """Return a decorator for one name; without it, and `optional`, the whole store."""
    whole: dict[str, Any] = {"default": ""} if optional else {}
    return click.argument(name, type=_NAME, metavar=metavar, **whole)


def paths_argument(name: str = "paths", *, optional: bool = False, metavar: str) -> Callable[[F], F]:
    """Return a decorator for several names; without any, and `optional`, the whole store."""

    def whole(ctx: click.Context, param: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
        return typed or WHOLE

    return click.argument(
        name, nargs=-1, type=_NAME, required=not optional, metavar=metavar, callback=whole if optional else None
    )


def each_command(name: str, metavar: str, *, looks: bool = False) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator as `command`, for a function of the session, the open store and a name, called for each name.

    Brackets around `metavar` make the names optional: without one it is called for the whole store.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def call(session: Session, paths: tuple[str, ...], **options: Any) -> None:
            with session.open_store(looks=looks) as store:
                each(session, store, paths, lambda path: function(session, store, path, **options))

        return command(name)(paths_argument(optional=metavar.startswith("["), metavar=metavar)(call))

    return decorate


def each(session: Session, store: Store, typed: Sequence[str], work: Callable[[str], None]) -> None:
    """Call `work` with each name that paths and patterns stand for, as `each_name`."""
    each_name(session, *names_of(session, store, typed), work)


def names_of(
    session: Session, store: Store, typed: Sequence[str], *, missing_ok: bool = False
) -> tuple[list[str], int]:
    """Return the names that paths and patterns stand for, each once, and the exit code of what stands for none.

    The error of a path that is alone is raised, others are reported. With `missing_ok` a pattern may match nothing.
    """
    names: dict[str, None] = {}
    code = 0
    for text in typed:
        try:
            names.update(dict.fromkeys(join(split(name)) for name in store.names_of(text)))
        except _OF_THE_PATH as exc:
            if missing_ok and isinstance(exc, NotFound):
                continue
            if len(typed) == 1:
                raise
            reported = errors.report(exc, session)
            code = code or reported
    return list(names), code


def each_name(session: Session, names: Sequence[str], code: int, work: Callable[[str], None]) -> None:
    """Call `work` with each name; exit with `code`, or the code of the first failure, if there is one.

    What fails is reported and the next is tried, as by rm(1). The error of a name that is alone is raised.
    """
    for name in names:
        try:
            work(name)
        except _OF_THE_PATH as exc:
            if len(names) == 1 and not code:
                raise
            reported = errors.report(exc, session)
            code = code or reported
    if code:
        raise click.exceptions.Exit(code)

"""Define tierfs inspect: show what one object says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.place_options import server_of, server_options
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.recovery.object_headers import ObjectHeader

# Rows of an index that are shown; --json has all.
_PARTS_SHOWN = 10

_TIME = "_ms"


@command("inspect")
@click.argument("objects", nargs=-1, required=True, metavar="OBJECT...")
@server_options()
def inspect(session: Session, objects: tuple[str, ...], **options: Any) -> None:
    """Show objects: name, header or index, and user metadata.

    OBJECT is a name in the store's cold tier, as info --map --json, gc and check print it; a URL like s3://BUCKET/KEY;
    or a file, as a path that starts with / or ./. Supported are chunks, packs, the data and index objects of ledgers
    (also those of Pulsar), journal entries, checkpoints, dumps, and marks. URLs and files need no store.

    Only headers and indexes are read; tierfs check reads all bytes. The exit code is 74 if an object is damaged or
    contradicts itself.
    """
    from tierfs.app.inspect import inspect

    server, damaged = server_of(**options), False
    with session.open_store(looks=True) if session.has_store else nullcontext() as store:
        for number, wanted in enumerate(objects):
            header = inspect(wanted, store, server)
            if number and not session.json:
                click.echo()
            rows = [(printable(name), printable(text)) for name, text in _header_rows(header)]
            session.result(_header_data(header), output.table(rows))
            damaged |= bool(header.wrong)
    if damaged:
        raise click.exceptions.Exit(errors.EXIT_DAMAGED)


def _header_data(header: ObjectHeader) -> dict[str, Any]:
    data = {"object": header.name, "kind": header.kind, **output.fields(header.stored, "bytes=length_bytes etag")}
    data |= {"modified": output.timestamp(header.stored.modified_ms), "metadata": dict(header.metadata)}
    return data | {"header": _plain(header.fields), "parts": header.parts, "wrong": header.wrong}


def _header_rows(header: ObjectHeader) -> Iterator[tuple[str, str]]:
    yield from [("object", header.name), ("kind", header.kind), ("size", f"{header.stored.length_bytes:,} B")]
    yield from [("etag", header.stored.etag), ("modified", output.timestamp(header.stored.modified_ms) or "-")]
    yield from ((name, _shown(value)) for name, value in _plain(header.fields).items())
    yield from (("", _shown(part)) for part in header.parts[:_PARTS_SHOWN])
    if len(header.parts) > _PARTS_SHOWN:
        yield "", f"and {output.count(len(header.parts) - _PARTS_SHOWN, 'more row')}: --json"
    yield from (("metadata", f"{name} = {value}") for name, value in header.metadata.items())
    yield from (("WRONG", text) for text in header.wrong)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with their times as such."""
    return {
        name.removesuffix(_TIME): output.timestamp(value) if name.endswith(_TIME) else value
        for name, value in fields.items()
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return "-" if value is None else str(value)

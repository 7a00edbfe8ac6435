"""Define the options that name a place of cold bytes, and its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tierfs.engine.chunkstore.place import Place, Server

F = TypeVar("F", bound=Callable[..., Any])


def added(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in the order of the help."""

    def decorate(function: F) -> F:
        return reduce(lambda inner, option: option(inner), reversed(options), function)

    return decorate


def server_options(endpoint: str = "URL of the S3 server; only for servers other than AWS.") -> Callable[[F], F]:
    """Return a decorator for the options of an S3 server: `endpoint_url`, `region` and `profile`."""
    return added(
        click.option("--endpoint-url", metavar="URL", help=endpoint),
        click.option("--region", metavar="R", help="Region of the bucket."),
        click.option("--profile", metavar="P", help="Profile in ~/.aws with the credentials."),
    )


def place_options(bucket: str, cold_url: str, cold_dir: str) -> Callable[[F], F]:
    """Return a decorator for the options that name a cold tier, each with its line of the help."""
    return added(
        click.option("--bucket", metavar="s3://B/PREFIX", help=bucket),
        click.option("--cold-url", metavar="URL", help=cold_url),
        click.option("--cold-dir", type=click.Path(path_type=Path), metavar="DIR", help=cold_dir),
    )


def archive_options(archive_place: str) -> Callable[[F], F]:
    """Return a decorator for the options that name an archive place and its S3 server."""
    return added(
        click.option("--archive-place", metavar="URL", help=archive_place),
        click.option("--archive-endpoint-url", metavar="URL", help="URL of its S3 server; only if other than AWS."),
        click.option("--archive-region", metavar="R", help="Region of its bucket."),
        click.option("--archive-profile", metavar="P", help="Profile in ~/.aws with the credentials for it."),
    )


def archive_of(where: dict[str, Any]) -> Place | None:
    """Take the options of an archive place out of all; return it, None if none is named.

    Raises UsageError, and InvalidRequest for a URL that is not a place.
    """
    parts = {key: where.pop(f"archive_{key}") or "" for key in ("endpoint_url", "region", "profile")}
    url = where.pop("archive_place")
    if url is None:
        if given := next((key for key, value in parts.items() if value), None):
            raise click.UsageError(f"--archive-{given.replace('_', '-')} needs --archive-place")
        return None
    from tierfs.base.options.config import ColdSettings
    from tierfs.engine.chunkstore.place import Place

    return Place.unknown(Path(), ColdSettings()).changed({"url": url, **parts})


def require_bucket(bucket: str | None, cold_url: str | None, needing: Mapping[str, object]) -> None:
    """Raise UsageError for an option of a bucket that is given without one; a URL says itself what it needs."""
    given = next((key for key, value in needing.items() if value), None)
    if bucket is None and cold_url is None and given is not None:
        raise click.UsageError(f"--{given.replace('_', '-')} needs --bucket")


def server_of(*, endpoint_url: str | None, region: str | None, profile: str | None) -> Server:
    """Return the server that the options name."""
    from tierfs.engine.chunkstore.place import Server

    return Server(endpoint_url or "", region or "", profile or "")


def place_of(bucket: str | None, cold_url: str | None, cold_dir: Path | None, **where: str | None) -> Place | None:
    """Return the place that the options name; None if they name no place. At most one of the first three is given.

    Raises UsageError, and InvalidRequest for a URL that is not a place.
    """
    require_bucket(bucket, cold_url, where)
    from tierfs.engine.chunkstore.place import Place

    server = server_of(**where)
    if bucket is not None:
        return Place.in_bucket(bucket, server)
    if cold_url is not None:
        return Place.parsed(cold_url, server)
    return None if cold_dir is None else Place.in_directory(cold_dir)


def require_place(
    what: str, bucket: str | None, cold_url: str | None, cold_dir: Path | None, **where: str | None
) -> Place:
    """Return the place that the options name. Raises as `place_of`, and UsageError unless they name one, `what`."""
    place = None
    if sum(option is not None for option in (bucket, cold_url, cold_dir)) == 1:
        place = place_of(bucket, cold_url, cold_dir, **where)
    if place is None:
        raise click.UsageError(f"specify the place {what}: --bucket, --cold-url or --cold-dir")
    return place

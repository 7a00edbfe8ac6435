"""Define the options that name a place of cold bytes, and its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tierfs.app.setup.create import ColdChoice

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


def require_bucket(bucket: str | None, cold_url: str | None, needing: Mapping[str, object]) -> None:
    """Raise UsageError for an option of a bucket that is given without one; a URL says itself what it needs."""
    given = next((key for key, value in needing.items() if value), None)
    if bucket is None and cold_url is None and given is not None:
        raise click.UsageError(f"--{given.replace('_', '-')} needs --bucket")


def cold_choice(
    what: str, bucket: str | None, cold_url: str | None, cold_dir: Path | None, **where: str | None
) -> ColdChoice:
    """Return the place that the options name. Raises UsageError, with `what` is to be named, unless they name one."""
    if sum(choice is not None for choice in (bucket, cold_url, cold_dir)) != 1:
        raise click.UsageError(f"specify the place {what}: --bucket, --cold-url or --cold-dir")
    require_bucket(bucket, cold_url, where)
    from tierfs.app.setup.create import ColdChoice

    return ColdChoice(bucket_url=bucket, cold_url=cold_url, cold_dir=cold_dir, none=False, **where)

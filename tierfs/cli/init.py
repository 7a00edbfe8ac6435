"""tierfs init."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.app import ColdChoice, init_store
from tierfs.cli.context import Context, pass_context
from tierfs.cli.output import emit, warn
from tierfs.errors import InvalidRequest


@click.command("init")
@click.option("--bucket", metavar="s3://BUCKET/PREFIX", help="Keep cold bytes in S3.")
@click.option("--cold-dir", type=click.Path(path_type=Path), help="Keep cold bytes in a directory.")
@click.option("--cold", type=click.Choice(["none"]), help="No cold tier at all.")
@click.option("--endpoint-url", help="S3 endpoint; default AWS.")
@click.option("--region", help="S3 region.")
@click.option("--profile", help="Profile of the AWS configuration files.")
@pass_context
def init_command(
    context: Context,
    bucket: str | None,
    cold_dir: Path | None,
    cold: str | None,
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> None:
    """Make a store. Without an option the cold tier is a directory in the store."""
    if sum(choice is not None for choice in (bucket, cold_dir, cold)) > 1:
        raise InvalidRequest("--bucket, --cold-dir and --cold exclude each other")
    if bucket is None and any((endpoint_url, region, profile)):
        raise InvalidRequest("--endpoint-url, --region and --profile need --bucket")
    choice = ColdChoice(bucket, cold_dir, cold == "none", endpoint_url, region, profile)
    report = init_store(context.store_path(), choice)
    if context.as_json:
        emit(
            {
                "store": str(report.path),
                "store_id": report.store_id,
                "cold": report.cold_url,
                "warnings": list(report.warnings),
            }
        )
        return
    print(f"store {report.path} is ready; cold tier: {report.cold_url or 'none'}")
    for warning in report.warnings:
        warn(context, warning)

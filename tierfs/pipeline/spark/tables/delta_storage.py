"""The place of a table of Delta, as its library reaches it: with what Spark's own file systems are told."""

from __future__ import annotations

from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.pipeline.spark.tables.run_lock import local_path

_S3 = ("s3a", "s3")
_OPTIONS = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint.region": "AWS_REGION",
}


def place_of(spark: SparkSession, location: str) -> tuple[str, dict[str, str]]:
    """Return the address of a table and the options of the library for it.

    What Spark does not set for S3 is found as by other programs: in the environment, or from the machine's role. Raises
    InvalidRequest for storage other than a local disk and S3, as no other was tried.
    """
    directory = local_path(location)
    if directory is not None:
        return str(directory), {}
    url = urlsplit(location)
    if url.scheme not in _S3:
        raise InvalidRequest(
            f"{printable(location)}: tables of Delta are on local disks and on S3",
            remedy="write to s3a://BUCKET/…, or a table of Iceberg or Parquet files",
        )
    configuration = spark.sparkContext._jsc.hadoopConfiguration()

    def setting(name: str) -> str:
        of_bucket: str | None = configuration.get(f"fs.s3a.bucket.{url.netloc}.{name}")
        value: str | None = of_bucket or configuration.get(f"fs.s3a.{name}")
        return value or ""

    options = {option: value for name, option in _OPTIONS.items() if (value := setting(name))}
    if endpoint := setting("endpoint"):
        scheme = "https" if setting("connection.ssl.enabled") != "false" else "http"
        endpoint = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}
        options.setdefault("AWS_REGION", "us-east-1")
    if setting("path.style.access"):
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(setting("path.style.access") != "true").lower()
    return f"s3://{url.netloc}{url.path}", options

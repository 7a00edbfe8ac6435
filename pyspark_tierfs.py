"""Lets Spark find `format("tierfs")` by its name: it imports top-level modules that begin with `pyspark_`.

An error here would break the lookup of every data source, so nothing is imported before a source is used.
"""

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Makes the data source of tierfs in its own place."""

    def __new__(cls, options):
        from tierfs.base.system import extras

        with extras.needed_by("format('tierfs')", "spark"):
            from tierfs.pipeline.spark.source import TierfsDataSource

        return TierfsDataSource(options)

    @classmethod
    def name(cls):
        return "tierfs"

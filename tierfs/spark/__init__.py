"""Spark: reads, streams and writes of a store by name, `format("tierfs")`, and the jobs that run on it.

The only folder that imports pyspark. It plans with `scan` and turns records into Arrow batches; it holds no policy.
"""

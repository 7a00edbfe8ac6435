"""Runs heavy work on a store as Spark jobs: `tierfs pipeline ingest|scrub|export|report|rebuild`, and for notebooks.

A job plans on the driver, its tasks run on executors without a store, and the driver writes the changes. Each file is
one job; `session` makes the Spark session, `tasks` runs waves of tasks and holds their rows.
"""

"""Define `tierfs pipeline …`.

`pipeline` has the options all jobs share, `jobs` has one command for each. Spark is imported when a job runs.
"""

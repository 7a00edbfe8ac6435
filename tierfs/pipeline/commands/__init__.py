"""Define the commands of `tierfs pipeline`, one file for each job.

`pipeline` is the group, which loads a job's file by its name; `job` has the options that all jobs share, starts Spark
and writes the rows. A job itself is in `tierfs/pipeline/spark/jobs/`.
"""

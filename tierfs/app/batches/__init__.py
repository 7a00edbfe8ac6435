"""Distributed writes: the tasks of a job upload objects, and one commit makes segments of them, exactly once.

The way of a write, from Spark (`tierfs/pipeline/spark/writer.py`) or a program to the proof in the bucket:

  `driver`    begins a job on a store, commits it, waits until the bucket's journal names it: read this first
  `executor`  the plain data that travels to the tasks, and the uploads of one task, without a store
  `upload`    one segment of a task: its bytes become objects `uploads/<job>/…`
  `job`       the driver's steps on metadata and bucket, in the order that makes a crash safe
  `manifest`  lists the segments of the objects in the bucket, before the commit
  `commit`    one transaction that makes all segments, and records the version of the application
  `recovery`  finds the committed jobs in a bucket without a journal, by markers and manifests

Below this room, because lower wings use it: the rows of versions (`tierfs/engine/metadata/batches.py`), the markers
(`tierfs/engine/journal/batch_markers.py`), the names of objects (`tierfs/base/words/object_names.py`). The publisher of
the journal writes the markers; `tierfs/tiering/garbage/` collects dead jobs.
"""

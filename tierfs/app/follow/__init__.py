"""Follow files that grow: every line of a log is in its segment once, after any kill and any rotation.

Comes in: paths, directories, patterns. Goes out: appends, each of which records the place of its bytes in their file in
its own transaction (`tierfs/engine/metadata/followed.py`). Files are only ever read.

  `follower`    the loop: looks, reads, appends many logs in one commit, waits. Read this first
  `plan`        pure: which file continues a log, and which come after it, by what the store has of it
  `rotations`   pure: which names are earlier files of a log, and in which order
  `earlier_files`  the names of earlier files, from one listing of a directory for all logs in it
  `in_background`  the same by the holder of a store
  `journal`     the journal of systemd, by its cursor
  `beginnings`  what is followed, and from which files on
  `resume`      the place of a segment without a record, by its last bytes
  `target`      the store that lines go to, as followers see it: `local`, of this host, or `remote`, by `server`
  `log_reader`  one log: its open files, and its next whole lines
  `files`       one file: its bytes, decompressed if need be, and whether it is the one that the store knows
  `sources`     the logs that paths and patterns stand for, and their segments
  `tree`        directories that are listed again only after a change
  `summary`     what a follower has done
  `hints`       inotify: which directories to look at before their turn
"""

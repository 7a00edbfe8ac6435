"""The `tierfs://` filesystem of fsspec: pandas, polars, pyarrow, dask and DuckDB read and write segments by URL.

filesystem.py is the class that fsspec finds by entry point, and files.py are the files it opens, over the store that
all of a process share (app/connection.py) and the thread that tierfs's own reader runs in (reading/read_loop.py).
"""

from tierfs.base.system import extras

with extras.needed_by("tierfs.faces.fsspec", "fsspec"):
    from tierfs.faces.fsspec.filesystem import TierfsFileSystem

__all__ = ["TierfsFileSystem"]

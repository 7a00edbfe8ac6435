"""The `tierfs://` filesystem of fsspec: pandas, polars, pyarrow, dask and DuckDB read and write segments by URL.

filesystem.py is the class that fsspec finds by entry point; files.py are the files it opens, connection.py the
store that all of a process share, and read_loop.py the thread that tierfs's own reader runs in.
"""

from tierfs.fsspec.filesystem import TierfsFileSystem

__all__ = ["TierfsFileSystem"]

"""What real libraries write to a file of the filesystem is what they write to a file, and they read it back."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, orc, parquet

from tests.faces.fsspec.conftest import CHUNK_BYTES
from tierfs.app import store as app
from tierfs.faces.fsspec import TierfsFileSystem

NUMBERS = np.arange(100_000)
TABLE = pa.table({"a": list(range(1000))})
LARGE = os.urandom(5 << 20)
"""More than the file gathers before it appends."""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "latin-1"])
def test_text_is_as_in_a_local_file(fs: TierfsFileSystem, tmp_path: Any, encoding: str) -> None:
    """Byte order marks, positions, and appends without another mark."""
    for parts in (("ä,b\n", "1,2\n"), ("3,4\n",), ("",)):
        with fs.open("t", "a", encoding=encoding) as ours, (tmp_path / "t").open("a", encoding=encoding) as theirs:
            for part in parts:
                assert ours.tell() == theirs.tell()
                assert ours.write(part) == theirs.write(part)
            assert (ours.tell(), ours.seek(0, os.SEEK_END)) == (theirs.tell(), theirs.seek(0, os.SEEK_END))
            ours.seek(ours.tell())
        assert fs.cat("t") == (tmp_path / "t").read_bytes()


TEXTS: dict[str, dict[str, Any]] = {
    **{encoding: {"encoding": encoding} for encoding in ("utf-8-sig", "utf-16", "utf-32")},
    **{name: {"compression": name} for name in ("gzip", "zip", "bz2", "xz", "tar")},
}


@pytest.mark.parametrize("options", TEXTS.values(), ids=TEXTS)
def test_pandas_reads_its_own_text(store: app.Store, options: dict[str, Any]) -> None:
    options = {**options, "storage_options": {"store": str(store.path), "skip_instance_cache": True}}
    frame = pd.DataFrame({"x": ["ä", "b"]})
    frame.to_csv("tierfs://d/t.csv", index=False, **options)
    pd.testing.assert_frame_equal(pd.read_csv("tierfs://d/t.csv", **options), frame)


def test_only_the_own_position_is_sought(fs: TierfsFileSystem) -> None:
    with fs.open("b", "wb") as file:
        assert (file.seekable(), file.readable(), file.tell(), file.seek(0)) == (True, False, 0, 0)
        file.write(b"x" * (CHUNK_BYTES + 1))
        end = CHUNK_BYTES + 1
        assert (file.tell(), file.seek(0, os.SEEK_CUR), file.seek(0, os.SEEK_END), file.seek(end)) == (end,) * 4
        for wanted in ((0,), (end - 1,), (end + 1,), (-1, os.SEEK_CUR), (1, os.SEEK_CUR), (-1, os.SEEK_END)):
            with pytest.raises(io.UnsupportedOperation, match=f"written only at its end, {end}, not at"):
                file.seek(*wanted)
        assert file.tell() == end
        file.write(b"y")
    assert fs.cat("b") == b"x" * end + b"y"
    with fs.open("b", "ab") as file:
        assert file.tell() == end + 1


def _zip(file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("small", "hello" * 100)
        with packed.open("large", "w") as entry:
            entry.write(LARGE)


def _unzip(file: IO[bytes]) -> bool:
    with zipfile.ZipFile(file) as packed:
        return packed.testzip() is None and packed.read("large") == LARGE


def _tar(file: IO[bytes]) -> None:
    with tarfile.open(fileobj=file, mode="w") as packed:
        member = tarfile.TarInfo("a")
        member.size = len(LARGE)
        packed.addfile(member, io.BytesIO(LARGE))


def _untar(file: IO[bytes]) -> bool:
    with tarfile.open(fileobj=file) as packed:
        found = packed.extractfile("a")
        return found is not None and found.read() == LARGE


def _packed(module: Any) -> tuple[Callable[[IO[bytes]], object], Callable[[IO[bytes]], object]]:
    def write(file: IO[bytes]) -> None:
        with module.open(file, "wb") as packed:
            packed.write(LARGE[:200_000])

    def read(file: IO[bytes]) -> bool:
        with module.open(file, "rb") as packed:
            return bool(packed.read() == LARGE[:200_000])

    return write, read


WRITERS: dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    "zip": (_zip, _unzip),
    "tar": (_tar, _untar),
    "gzip": _packed(gzip),
    "bz2": _packed(bz2),
    "xz": _packed(lzma),
    "npy": (lambda file: np.save(file, NUMBERS), lambda file: (np.load(file) == NUMBERS).all()),
    "npz": (lambda file: np.savez(file, a=NUMBERS), lambda file: (np.load(file)["a"] == NUMBERS).all()),
    "pickle": (lambda file: pickle.dump(LARGE, file), lambda file: pickle.load(file) == LARGE),
    "parquet": (lambda file: parquet.write_table(TABLE, file), lambda file: parquet.read_table(file) == TABLE),
    "feather": (lambda file: feather.write_feather(TABLE, file), lambda file: feather.read_table(file) == TABLE),
    "orc": (lambda file: orc.write_table(TABLE, file), lambda file: orc.read_table(file) == TABLE),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_a_library_writes_it_reads(fs: TierfsFileSystem, name: str) -> None:
    write, read = WRITERS[name]
    with fs.open(f"d/{name}", "wb") as file:
        write(file)
    with fs.open(f"d/{name}", "rb") as file:
        assert read(file)


def test_rows_of_csv_are_counted(fs: TierfsFileSystem) -> None:
    with fs.open("rows", "w", newline="") as file:
        csv.writer(file).writerows([[1, 2], [3, 4]])
        assert file.tell() == 10

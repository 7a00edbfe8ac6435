"""tierfs gc --delete: deleted objects, failed deletions, and the report of both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Bind-mount a file over itself, so that not even root can delete it."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file needs root")
    subprocess.run(["mount", "--bind", str(file), str(file)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(file)], check=True)


def test_a_deletion_that_fails_is_named_and_no_success(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    (path / "store.toml").write_text("[offload]\ngrace_s = 0\n[cold]\nattempts = 1\n")
    tierfs("append", "s", store=path, stdin=b"bytes")
    tierfs("offload", "", store=path)
    (chunk,) = (path / "cold" / "segments").rglob("chunk-*")
    name = chunk.relative_to(path / "cold")
    with held(chunk):
        tierfs("rm", "s", "--now", "--yes", store=path, check=False)
        for _ in range(2):  # also where it was put off after the first time
            done = tierfs("gc", "--delete", store=path, check=False)
            assert done.code == 11, done
            assert "deleted 0 objects, 0 B" in done.out
            assert f"1 deletion failed, the first: {name}: " in done.err
            assert "busy" in done.err
        done = tierfs("gc", "--delete", "--json", store=path, check=False)
        assert (done.code, done.json["failed"], json.loads(done.err.splitlines()[-1])["kind"]) == (11, 1, "Unavailable")
        assert "busy" in tierfs("gc", store=path).out
    assert tierfs("gc", "--delete", store=path).out == "deleted 1 object, 5 B\n"
    assert not chunk.exists()

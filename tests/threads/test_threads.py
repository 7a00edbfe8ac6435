"""Every class that says it is thread-safe: used by several threads that switch after each microsecond.

With the usual interval of 5 ms a thread hardly ever stops between two statements that belong together.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tests.threads import reads, verbs
from tests.threads.case import together

SWITCH_S = 1e-6
ROOT = Path(__file__).parent.parent.parent
CASES = reads.CASES | verbs.CASES

_WITH = {
    "_Compressor": "CompressedSource",
    "FrameRoom": "CompressedSource",
    "_Calls": "one semaphore; tests/faults/test_deadlines.py appends with threads",
    "ArchiveAccess": "one value set at a time",
    "ArchiveProof": "looks under one lock",
    "ArchiveMove": "one flag that is set once, and sends a copy again at worst",
    "AppendPool": "GroupCommit, of which it is one; tests/tiering/test_append_pool.py appends with threads",
    "Files": "a protocol: tests/conformance has threads for each place",
    "LedgerInObjects": "LedgerSource",
    "ManagedLedger": "ManagedLedgerWriter",
    "ObjectOffloader": "one object at a time, of storages that are",
    "ObjectPlace": "a protocol: tests/conformance has threads for each place",
    "Offloader": "a protocol",
    "Consolidations": "VerbRuns",
    "Offloads": "VerbRuns",
    "ProvedSource": "the bytes of each thread are its own; tests/tiering/test_compressed_consolidation.py",
    "TaskRows": "PlainBytes",
    "VerbRuns": "one table under one lock; tests/faces/admin asks with threads",
    "SharedWriters": "tests/engine/segments/test_shared_writers.py opens and closes with threads",
    "Writer": "SegmentWriter",
    "CacheWriter": "tests/reading/cache, with threads of its own",
    "ChunkStorage": "a protocol: its providers are here, and in tests/conformance",
    "ClockCheck": "one value set at a time",
    "Connector": "a protocol: Locations",
    "LocatedStorage": "tests/app/moving/test_located.py reads with threads while the place changes",
    "Locations": "tests/app/moving/test_located.py reads with threads while the place changes",
    "CopyReader": "a buffer for each thread",
    "IdleConnections": "tests/reading/test_first_read, and takes and gives under one lock",
    "InFlight": "Links",
    "Mounts": "looks under one lock",
    "LedgerSource": "one block at a time, under two locks",
    "LedgerReader": "counts under one lock; tests/tiering/adoption reads with threads",
    "Pieces": "Pool",
    "Places": "looks under one lock",
    "OwnerWatch": "asks under one lock; tests/faults/test_superseded.py appends with threads",
    "Packs": "reads under one lock",
    "Unrestored": "counts under one lock",
    "Publisher": "asked by one thread at a time, and its proofs are single values",
    "RangeReader": "SignedUrls; tests/engine/chunkstore/test_s3.py reads with threads",
    "Repack": "steps under one lock",
    "S3Storage": "its parts",
    "SshSessions": "one session under one lock; tests/conformance has threads for each place",
    "StoreLimits": "makes each limit under one lock",
    "TaskPatience": "one value set at a time",
    "ThreadGets": "IdleConnections",
    "Throttle": "counts under one lock; tests/base/system/test_throttle.py",
    "TlsClient": "one value per origin, under a lock",
    "Views": "makes each page under one lock",
    "Uploader": "Slots, Pool and Link",
}
"""Classes that are thread-safe by others, or are tested elsewhere."""

_STATELESS = {
    "JoinedFiles",
    "ObjectTables",
    "Accuser",
    "BatchJobs",
    "Composer",
    "Consolidate",
    "FileReader",
    "LedgerLinker",
    "LedgerOffloader",
    "ManagedOffload",
    "Offload",
    "PackOffload",
    "TaskReader",
    "VerifiedReader",
}
"""Classes that change nothing of their own after construction."""


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "500"}) as opened:
        yield opened


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("name", sorted(CASES))
def test_threads_that_switch_at_every_moment_see_whole_values(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str], name: str
) -> None:
    expected_warnings += ["task . failed: away"]
    for case in CASES[name](store, monkeypatch):
        together(case.work)
        assert case.check() is not False


@cache
def thread_safe() -> Sequence[ast.ClassDef]:
    return list(_thread_safe())


def _thread_safe() -> Iterator[ast.ClassDef]:
    for path in (ROOT / "tierfs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = (ast.get_docstring(node) or "").lower() if isinstance(node, ast.ClassDef) else ""
            if "thread-safe" in text and "not thread-safe" not in text:
                assert isinstance(node, ast.ClassDef)
                yield node


def test_each_class_that_says_it_is_thread_safe_is_accounted_for() -> None:
    classes = {node.name for node in thread_safe()}
    assert classes == CASES.keys() | _WITH.keys() | _STATELESS


def test_classes_without_state_set_nothing_after_construction() -> None:
    for node in thread_safe():
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name != "__init__"]
        targets = [
            ast.unparse(target)
            for method in methods
            for inner in ast.walk(method)
            if isinstance(inner, ast.Assign | ast.AugAssign | ast.AnnAssign)
            for target in (inner.targets if isinstance(inner, ast.Assign) else [inner.target])
        ]
        if node.name in _STATELESS:
            assert [target for target in targets if "self._" in target] == [], node.name

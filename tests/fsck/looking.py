"""Looking at a test store as fsck does."""

from __future__ import annotations

from tests.stores import TestStore
from tierfs.fsck.chains import Totals
from tierfs.fsck.files import FileCheck
from tierfs.fsck.findings import Finding
from tierfs.fsck.metadata import check_metadata
from tierfs.fsck.objects import ObjectTable


def findings(store: TestStore) -> list[Finding]:
    """What the checks of metadata and local files say."""
    table, totals = ObjectTable(), Totals()
    with store.metadata.read() as txn:
        found = list(check_metadata(txn, table, totals))
        found += FileCheck(store.metadata, store.files, table, totals.active).run(txn)
    return found

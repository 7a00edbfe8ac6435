"""Looking at a test store as fsck does."""

from __future__ import annotations

from tests.stores import LOCATION, TestStore
from tierfs.fsck.bucket import BucketCheck
from tierfs.fsck.chains import Totals
from tierfs.fsck.files import FileCheck
from tierfs.fsck.findings import Finding
from tierfs.fsck.journal import JournalCheck
from tierfs.fsck.metadata import check_metadata
from tierfs.fsck.objects import ObjectTable


def findings(store: TestStore) -> list[Finding]:
    """What the checks of metadata and local files say."""
    table, totals = ObjectTable(), Totals()
    with store.metadata.read() as txn:
        found = list(check_metadata(txn, table, totals))
        found += FileCheck(store.metadata, store.files, table, totals.active).run(txn)
    return found


def cold_findings(store: TestStore) -> list[Finding]:
    """What the checks of the journal and of the bucket's objects say."""
    table = ObjectTable()
    with store.metadata.read() as txn:
        list(check_metadata(txn, table, Totals()))
    found = JournalCheck(store.metadata, store.cold).run()
    return found + list(BucketCheck(store.metadata, lambda _: store.cold, LOCATION, table).run())

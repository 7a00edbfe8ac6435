"""Policies in the database: what is set where, and what holds for a segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tierfs.metadata import directories, journal, keys
from tierfs.metadata.records import PolicyRecord, SegmentRecord
from tierfs.metadata.tables import POLICIES
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.policy import Policy, inherit
from tierfs.types import ROOT_DIRECTORY


def effective(txn: ReadTransaction, segment: SegmentRecord) -> Policy:
    """The policy in force for a segment: its own settings, then its directories' up to the root."""
    levels = [_settings(txn, segment.id)]
    directory_id = segment.parent_id
    while True:
        levels.append(_settings(txn, directory_id))
        if directory_id == ROOT_DIRECTORY:
            break
        directory_id = directories.directory(txn, directory_id).parent_id
    return inherit(levels[::-1])


def put(txn: WriteTransaction, target_id: int, settings: Mapping[str, str]) -> None:
    """Replace the settings of a directory or segment."""
    inherit([settings])
    old = txn.get(POLICIES, keys.u64(target_id)) or PolicyRecord(target_id=target_id)
    record = replace(old, settings=dict(settings))
    txn.put(POLICIES, keys.u64(target_id), record)
    journal.policy_changed(txn, record)


def _settings(txn: ReadTransaction, target_id: int) -> Mapping[str, str]:
    record = txn.get(POLICIES, keys.u64(target_id))
    return {} if record is None else record.settings

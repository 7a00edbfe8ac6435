"""Watching for what other processes change: the kernel is told what to forget within a second."""

from __future__ import annotations

import logging
import os

import pyfuse3
import trio

from tierfs.fuse.inodes import Inodes
from tierfs.metadata import keys
from tierfs.metadata.records import TouchRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import TOUCHES
from tierfs.types import ROOT_INODE

log = logging.getLogger(__name__)


async def watch_changes(metadata: MetadataStore, inodes: Inodes, poll_s: float) -> None:
    """Poll LMDB's last transaction id and pass `changes` on to the kernel, until cancelled."""
    seen_id = metadata.last_transaction_id()
    with metadata.read() as txn:
        next_sequence = txn.store.next_change
    while True:
        await trio.sleep(poll_s)
        newest_id = metadata.last_transaction_id()
        if newest_id == seen_id:
            continue
        seen_id = newest_id
        touches, complete, next_sequence = _new_touches(metadata, next_sequence)
        if complete:
            for touch in touches:
                _pass_on(touch, inodes)
        else:
            log.info("too many changes at once: the kernel forgets everything")
            for inode in inodes.numbers():
                _invalidate_inode(inode)


def _new_touches(metadata: MetadataStore, since: int) -> tuple[list[TouchRecord], bool, int]:
    """Changes from sequence `since` on, whether none of them was trimmed, and the next sequence."""
    with metadata.read() as txn:
        rows = list(txn.scan(TOUCHES, keys.u64(since)))
        next_sequence = txn.store.next_change
    complete = len(rows) == next_sequence - since
    return [touch for _, touch in rows], complete, next_sequence


def _pass_on(touch: TouchRecord, inodes: Inodes) -> None:
    if touch.parent_inode and inodes.get(touch.parent_inode) is not None:
        # The _async form: the plain one can deadlock with a request for the same directory.
        pyfuse3.invalidate_entry_async(touch.parent_inode, os.fsencode(touch.name), ignore_enoent=True)
        _invalidate_inode(touch.parent_inode)
    if touch.inode and inodes.get(touch.inode) is not None:
        _invalidate_inode(touch.inode)


def _invalidate_inode(inode: int) -> None:
    """Attributes only: the data form deadlocks on the loop against a read in flight, and data never changes."""
    try:
        pyfuse3.invalidate_inode(inode, attr_only=True)
    except OSError as exc:  # the kernel has forgotten it meanwhile
        level = logging.DEBUG if inode != ROOT_INODE else logging.INFO
        log.log(level, "inode %d was not invalidated: %s", inode, exc)

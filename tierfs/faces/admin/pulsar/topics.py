"""Topics of Pulsar as managed ledgers: their directories, and what Pulsar's client reads of them.

The formats are those of Pulsar's PersistentTopicInternalStats, OffloadProcessStatus and MessageIdImpl as JSON.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from tierfs.base.words import json_data, names
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import positions, pulsar_info
from tierfs.engine.segments.positions import EARLIEST, Position
from tierfs.faces.admin.offloads import OffloadRun
from tierfs.faces.admin.verb_runs import RunState

_STATUS = {
    RunState.NOT_RUN: "NOT_RUN",
    RunState.RUNNING: "RUNNING",
    RunState.DONE: "SUCCESS",
    RunState.FAILED: "ERROR",
}

# A broker's PersistentTopic answers so for a topic that was never compacted.
_NOT_COMPACTED = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}

_DOMAIN = "persistent"


def namespace_of(txn: ReadTransaction, root: str, tenant: str, namespace: str) -> str:
    """Return the directory of a namespace, below the directory `root` of all tenants.

    Raises NotFound, InvalidRequest.
    """
    for part in (tenant, namespace):
        names.check_component(part)
    path = names.join((*names.split(root), tenant, namespace))
    if directories.find(txn, path) is None:
        raise NotFound(
            f"namespace {tenant}/{namespace} does not exist: it is the directory {path}",
            remedy="the first ledger creates its directory; admin.pulsar_root is the directory of all tenants",
        )
    return path


def topic_of(txn: ReadTransaction, root: str, tenant: str, namespace: str, encoded: str) -> str:
    """Return the directory of a topic, whose name is encoded as in URLs. Raises NotFound, InvalidRequest.

    A topic is the directory of its name in its namespace; one that was adopted is in `persistent` there, as Pulsar
    names its managed ledger.
    """
    above = namespace_of(txn, root, tenant, namespace)
    # TopicName.getPersistenceNamingEncoding, by java.net.URLEncoder: `*` stays, `~` does not.
    name = quote_plus(unquote_plus(encoded), safe="*").replace("~", "%7E")
    own, pulsars = f"{above}/{name}", f"{above}/{_DOMAIN}/{name}"
    path = next((path for path in (own, pulsars) if directories.find(txn, path) is not None), None)
    if path is None:
        raise NotFound(
            f"topic persistent://{tenant}/{namespace}/{name} does not exist: it is the directory {own}, or {pulsars}",
            remedy="to list names: tierfs ls -R",
        )
    return path


def internal_stats(txn: ReadTransaction, path: str, *, held: bool, metadata: bool) -> dict[str, Any]:
    """Return the statistics of a topic; with `metadata` each ledger's LedgerInfo as text.

    `held`: see positions.being_offloaded. Raises NotFound, InvalidRequest for a segment.
    """
    status = positions.status(txn, path, held=held)
    infos = pulsar_info.managed_ledger_info(txn, path).ledgers if metadata else ()
    ledgers: list[dict[str, Any]] = [
        {
            "ledgerId": ledger.ledger_id,
            "entries": ledger.entries,
            "size": ledger.bytes,
            "offloaded": ledger.offload is positions.OffloadState.COMPLETE,
            "underReplicated": False,
        }
        for ledger in status.ledgers
    ]
    for ledger, info in zip(ledgers, infos, strict=False):
        ledger["metadata"] = json.dumps(info.as_json())
    data: dict[str, Any] = {
        "numberOfEntries": status.entries,
        "totalSize": status.bytes,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "lastConfirmedEntry": str(EARLIEST),
        "state": "LedgerOpened",
        "ledgers": ledgers,
        "cursors": {},
        "schemaLedgers": [],
        "compactedLedger": _NOT_COMPACTED,
    }
    if status.ledgers:
        last = status.ledgers[-1]
        with_entries = next((ledger for ledger in reversed(status.ledgers) if ledger.entries), last)
        # pulsar-admin takes the current ledger's size for that of the last one in the list: also where it is closed.
        data |= {
            "currentLedgerEntries": last.entries,
            "currentLedgerSize": last.bytes,
            "lastConfirmedEntry": f"{with_entries.ledger_id}:{with_entries.entries - 1}",
            "lastLedgerCreatedTimestamp": json_data.timestamp(
                directories.segment_by_name(txn, last.segment).created_ms
            ),
            "state": "LedgerOpened" if last.state == "open" else "ClosedLedger",
        }
    if status.terminated:
        data["state"] = "Terminated"
    return data


def offload_status(run: OffloadRun) -> dict[str, Any]:
    """Return the status of an offload."""
    error = run.error
    reason = "" if error is None else "; ".join(filter(None, (str(error), error.remedy)))
    text = run.result.get("first_unoffloaded")
    first = Position.parse(text) if text else EARLIEST
    return {"status": _STATUS[run.state], "lastError": reason, "firstUnoffloadedMessage": message_id(first)}


def message_id(position: Position) -> dict[str, int]:
    """Return a position as a message id."""
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": -1}


def position_of(given: Any) -> Position:
    """Return the position of a message id. Raises InvalidRequest for what is none."""
    if isinstance(given, dict):
        ids = given.get("ledgerId"), given.get("entryId")
        if all(isinstance(number, int) and not isinstance(number, bool) for number in ids):
            return Position(*ids)  # type: ignore[arg-type]
    raise InvalidRequest('the body is not a message id, like {"ledgerId": 42, "entryId": 0}')

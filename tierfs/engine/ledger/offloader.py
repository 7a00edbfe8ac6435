"""PIP-17's interfaces: a ledger that can be read, and an offloader, with its three verbs. Protocols alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable
from uuid import UUID


@runtime_checkable
class ReadableLedger(Protocol):
    """A closed ledger: the PIP's ReadHandle."""

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        ...

    @property
    def last_entry_id(self) -> int:
        """The id of the last entry, -1 without one: lastAddConfirmed."""
        ...

    @property
    def length(self) -> int:
        """The bytes of all payloads."""
        ...

    def read(self, first: int, last: int) -> Iterator[bytes]:
        """Yield the payloads of entries `first` to `last`, both included, in order.

        Raises InvalidRequest for an entry that the ledger does not have, DataLoss for one that cannot be read.
        """
        ...


@runtime_checkable
class Offloader(Protocol):
    """A place where ledgers are copied to: the PIP's LedgerOffloader. Thread-safe; each verb may be repeated."""

    def offload(self, ledger: ReadableLedger, uuid: UUID, extra_metadata: Mapping[str, str]) -> None:
        """Copy all of a ledger, durably. `uuid` names the attempt; it was recorded before.

        `extra_metadata` are for people who look at the objects, such as `ManagedLedgerName`; no reader needs them.
        """
        ...

    def read_offloaded(self, ledger_id: int, uuid: UUID) -> ReadableLedger:
        """Return what that attempt copied. Raises NotFound where there is nothing."""
        ...

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> None:
        """Delete what that attempt copied, whole or not; nothing there is success."""
        ...

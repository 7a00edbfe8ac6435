"""Define tierfs seal and unseal."""

from __future__ import annotations

from tierfs.app.store import Store
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.paths import each_command
from tierfs.faces.cli.session import Session


@each_command("seal", "SEGMENT...")
def seal(session: Session, store: Store, name: str) -> None:
    """Seal segments: they accept no more bytes. Repeating it succeeds."""
    from tierfs.engine.segments import stat

    with store.metadata.read() as txn:
        before = stat.stat(txn, name)
    record = store.engine.seal(name)
    already = before.record.sealed
    data = {"segment": before.name, "length": record.length, "already_sealed": already}
    state = "is already sealed" if already else "is sealed"
    session.done(data, f"{printable(before.name)} {state}: {output.size(record.length)}")


@each_command("unseal", "SEGMENT...")
def unseal(session: Session, store: Store, name: str) -> None:
    """Reopen sealed segments: they accept bytes as before. Repeating it succeeds.

    In mounts the name becomes a new file; a file that is open there never grows.
    """
    record, changed = store.engine.unseal(name)
    data = {"segment": name, "length": record.length, "already_open": not changed}
    state = "is open again" if changed else "is already open"
    session.done(data, f"{printable(name)} {state}: {output.size(record.length)}")

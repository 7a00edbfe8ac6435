"""The holder's lock and its note: the lock counts, the note is for people."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tierfs.clock import ManualClock
from tierfs.holder.lock import HeldElsewhere, Hold, current


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_note_that_cannot_be_written_keeps_nobody_from_holding(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("others will not see which process holds the store")

    def refuse(fd: int, data: bytes, offset: int) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        held = Hold(tmp_path / "holder", ManualClock())
    with pytest.raises(HeldElsewhere, match="another process"):
        Hold(tmp_path / "holder", ManualClock())
    held.release()
    Hold(tmp_path / "holder", ManualClock()).release()


def test_a_failure_while_the_note_is_made_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", fail)
        with pytest.raises(ZeroDivisionError):
            Hold(tmp_path / "holder", ManualClock())
    assert current(tmp_path / "holder") is None
    Hold(tmp_path / "holder", ManualClock()).release()

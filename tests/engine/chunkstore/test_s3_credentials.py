"""Other credentials are looked for where they can have changed, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import botocore.session
import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.engine.chunkstore.s3.credentials import Renewal

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def renewal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> Renewal:
    """Of the keys in a file, which are replaced after they were read."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    held = botocore.session.Session().get_credentials()
    file.write_text("[default]\naws_access_key_id = c\naws_secret_access_key = d\n")
    return Renewal(None, held, clock)


def test_those_of_a_file_are_read_again_once_a_second(renewal: Renewal, clock: ManualClock, tmp_path: Path) -> None:
    assert renewal.renew()
    clock.advance(100)
    assert not renewal.renew(), "they are the same"
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = e\naws_secret_access_key = f\n")
    clock.advance(0.5)
    assert not renewal.renew()
    clock.advance(0.5)
    assert renewal.renew()


def test_those_of_the_environment_are_not(renewal: Renewal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can change them: another look would find those of a file, or the same ones, each second of an outage."""
    monkeypatch.setenv(KEYS[0], "a")
    monkeypatch.setenv(KEYS[1], "b")
    of_environment = Renewal(None, botocore.session.Session().get_credentials())
    monkeypatch.delenv(KEYS[0])
    monkeypatch.delenv(KEYS[1])
    assert not of_environment.renew()
    assert renewal.renew()

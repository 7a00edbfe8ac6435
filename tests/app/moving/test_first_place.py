"""A store that was made without a cold tier gets one, under a mount too, and loses nothing when that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket

TEXT = b"alone so far\n" * 1000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", "--cold", "none", store=path, check=False)
    tierfs("-q", "append", "d/a", store=path, stdin=TEXT)
    (tmp_path / "cold").mkdir()
    return path


def test_a_first_place_that_was_claimed_and_not_recorded_is_taken_up(store: Path, tmp_path: Path) -> None:
    """The journal is there, and the store does not know yet."""
    from tierfs.app.setup import create, place
    from tierfs.app.store import open_store
    from tierfs.base.options.config import ColdSettings
    from tierfs.base.words.types import LocationId
    from tierfs.engine.metadata.records import LocationRecord

    location = LocationRecord(id=LocationId(1), url=f"file:{tmp_path / 'cold'}")
    with open_store(store) as opened:
        storage = create.claimable(location, opened.paths)
        create.claim(opened.metadata, location, storage)
        storage.close()
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(Exception, match="published slot"):
            place.change(opened.metadata, opened.paths, ColdSettings(), {"url": str(other)})
        place.change(opened.metadata, opened.paths, ColdSettings(), {"url": str(tmp_path / "cold")})
    tierfs("-q", "offload", store=store)
    assert tierfs("check", store=store).out.endswith("clean\n")


def test_the_endpoint_of_the_environment_is_recorded(
    tmp_path: Path, moto_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a mount that is started without it would ask another server."""
    endpoint, bucket = moto_bucket[0].endpoint_url, moto_bucket[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    tierfs("-q", "init", "--bucket", f"s3://{bucket}/a", store=tmp_path / "a")
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "b", check=False)
    tierfs("-q", "config", f"cold.url=s3://{bucket}/b", store=tmp_path / "b")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for name in ("a", "b"):
        assert f"at {endpoint}" in tierfs("status", store=tmp_path / name).out
        tierfs("-q", "append", "s", store=tmp_path / name, stdin=TEXT)
        tierfs("-q", "offload", store=tmp_path / name)

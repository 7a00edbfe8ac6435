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
    from tierfs.app.setup import create, place_change
    from tierfs.app.store import open_store
    from tierfs.base.options.config import ColdSettings
    from tierfs.engine.chunkstore.place import Place

    place = Place.in_directory(tmp_path / "cold").of_store(store)
    with open_store(store) as opened:
        storage = create.claimable(place)
        create.claim(opened.metadata, place, storage)
        storage.close()
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(Exception, match="published slot"):
            place_change.change(opened.metadata, opened.paths, ColdSettings(), {"url": str(other)})
        place_change.change(opened.metadata, opened.paths, ColdSettings(), {"url": str(tmp_path / "cold")})
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

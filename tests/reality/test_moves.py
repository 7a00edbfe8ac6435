"""A few moves beside everything; `python -m tests.reality --place rgw moves --moves 50` is all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.reality.lives import buckets_at, directories_in
from tests.reality.moves import MovesDrill

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = pytest.mark.timeout(300)


@pytest.mark.whole  # the same without a mount
@pytest.mark.parametrize("moves", [1, 2])
def test_moves_lose_nothing_that_was_acknowledged(tmp_path: Path, moves: int) -> None:
    assert MovesDrill(tmp_path, directories_in(tmp_path), SEED, mounts=False).moves(moves)["records"]


@pytest.mark.mount
@pytest.mark.parametrize("moves", [1, pytest.param(2, marks=pytest.mark.whole)])
def test_moves_between_a_server_and_a_directory_under_a_mount(tmp_path: Path, rgw_bucket: Bucket, moves: int) -> None:
    """The first leaves the server, the second returns to it."""
    servers = buckets_at(rgw_bucket[0])
    assert MovesDrill(tmp_path, servers, SEED, directories_in(tmp_path), mounts=True).moves(moves)["records"]

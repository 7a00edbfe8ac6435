"""tierfs init inside another store's cold tier, or above one: refused, with few requests."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Bucket
from tierfs.app.setup import nesting
from tierfs.app.setup.create import init_store
from tierfs.base.words.errors import AlreadyExists
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.chunkstore.protocol import BufferSource

INSIDE, BELOW = "is inside the cold tier of another store, s3://", "has the cold tier of another store below it, in "


def choice(bucket: Bucket, prefix: str) -> Place:
    endpoint, name = bucket
    return Place.parsed(f"s3://{name}/{prefix}".rstrip("/"), Server(endpoint.endpoint_url))


@pytest.mark.parametrize(
    ("first", "refused", "neighbours"),
    [
        ("", {"a/b": INSIDE}, []),
        (
            "a/b",
            {"a/b/c": INSIDE, "a/b/segments/x/y": INSIDE, "a": f"{BELOW}b/", "": f"{BELOW}a/b/"},
            ["a/b-c", "a/bb", "journal/x"],
        ),
    ],
)
def test_a_prefix_inside_or_above_that_of_another_store_is_refused(
    moto_bucket: Bucket, tmp_path: Path, first: str, refused: dict[str, str], neighbours: list[str]
) -> None:
    init_store(tmp_path / "first", choice(moto_bucket, first))
    for prefix, how in refused.items():
        with pytest.raises(AlreadyExists, match=how):
            init_store(tmp_path / "second", choice(moto_bucket, prefix))
    assert not (tmp_path / "second").exists()
    endpoint, name = moto_bucket
    with closing(endpoint.client()) as client:
        keys = [entry["Key"] for entry in client.list_objects_v2(Bucket=name)["Contents"]]
    at = f"{first}/".lstrip("/")
    assert sorted(keys) == [f"{at}journal/00000000000000000001", f"{at}tierfs-store"]
    for prefix in neighbours:
        init_store(tmp_path / prefix.replace("/", "+"), choice(moto_bucket, prefix))


def test_many_objects_cost_few_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    class Counting(MemoryStorage):
        def list(self, prefix: str, *, after: str = "") -> Any:
            calls[prefix] += 1
            return super().list(prefix, after=after)

    storage = Counting()
    for directory in range(5):
        for number in range(20):
            storage.put(f"data-{directory}/{number:04d}", BufferSource(b"x"))
    storage.put("data-4/store/tierfs-store", BufferSource(b"{}"))
    storage.put("stores/a/journal/checkpoint-00000000000000000700", BufferSource(b"x"))
    monkeypatch.setattr(nesting, "_PAGE", 10)
    assert nesting._store_below(storage) == "stores/a"
    assert calls[""] == 6
    monkeypatch.setattr(nesting, "_MOST_LISTINGS", 3)
    assert nesting._store_below(storage) is None

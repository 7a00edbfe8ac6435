"""A place is parsed once: each form of its URL becomes one record, and a change of parts keeps the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.place import MAX_PREFIX_BYTES, Place, Server

OWN = Server("http://own", "eu", "me")
AT_OWN = ("http://own", "eu", "me")
LONGEST = "x" * MAX_PREFIX_BYTES


def parts(place: Place) -> tuple[str, str, str, str]:
    record = place.record
    return record.url, record.endpoint_url, record.region, record.profile


@pytest.mark.parametrize(
    ("url", "recorded"),
    [
        ("s3://b", "s3://b"),
        ("s3://b//p/q//", "s3://b/p/q"),
        (f"s3://b/{LONGEST}", f"s3://b/{LONGEST}"),
        ("/a/b", "file:/a/b"),
        ("file:///a//b/", "file:/a/b"),
        ("webhdfs://me@h:1/p/", "webhdfs://me@h:1/p"),
        ("gs://b/p", "gs://b/p"),
        ("memory://n/p", "memory://n/p"),
    ],
)
def test_a_url_has_one_recorded_form(url: str, recorded: str) -> None:
    place = Place.parsed(url)
    assert parts(place) == (recorded, "", "", "")
    assert Place.parsed(recorded.replace("file:", "file://")) == place
    assert (place.record.id, place.record.writable) == (1, True)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (f"s3://b/{LONGEST}x", f"more than {MAX_PREFIX_BYTES} bytes"),
        (f"gs://b/{LONGEST}", f"more than {MAX_PREFIX_BYTES} bytes"),
        ("s3://b/p?x=1", "is not an S3 location"),
        ("s3:b", "is not an S3 location"),
        ("file:/a", "unknown kind of cold tier"),
        ("a/b", "unknown kind of cold tier"),
    ],
)
def test_a_text_that_is_no_place_is_refused(url: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        Place.parsed(url)


def test_a_bucket_is_of_s3() -> None:
    assert parts(Place.in_bucket("s3://b/p", OWN)) == ("s3://b/p", *AT_OWN)
    for url in ("webhdfs://h/p", "/a", "b", "file:///a"):
        with pytest.raises(InvalidRequest, match="is not an S3 location"):
            Place.in_bucket(url)


def test_the_endpoint_of_the_environment_is_for_s3_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://theirs")
    assert Place.parsed("s3://b").record.endpoint_url == "http://theirs"
    assert Place.parsed("s3://b", OWN).record.endpoint_url == "http://own"
    assert Place.parsed("gs://b").record.endpoint_url == ""


def test_changed_parts_keep_the_others_within_s3_and_none_of_them_elsewhere(tmp_path: Path) -> None:
    first = Place.parsed("s3://b/p", OWN)
    place = Place(replace(first.record, id=LocationId(7)), tmp_path)
    assert parts(place.changed({"url": "s3://c/"})) == ("s3://c", *AT_OWN)
    assert parts(place.changed({"region": "us"})) == ("s3://b/p", "http://own", "us", "me")
    assert parts(place.changed({"url": "file:/a/"})) == ("file:/a", "", "", "")
    assert place.changed({"url": "/a"}).record.id == 7
    assert place.changed({"url": "/a"}).store == tmp_path
    with pytest.raises(InvalidRequest, match="file:a is not a place"):
        place.changed({"url": "file:a"})


def test_a_foreign_place_takes_any_key_and_is_only_read() -> None:
    place = Place.foreign(f"s3://b/{LONGEST}?#x", OWN, Place.inside().settings)
    assert place.s3_location.prefix == f"{LONGEST}?#x"
    assert (place.record.id, place.record.writable) == (0, False)


def test_the_directory_of_a_place_is_that_in_its_store(tmp_path: Path) -> None:
    assert Place.inside().of_store(tmp_path).directory == tmp_path / "cold"
    assert Place.in_directory(Path("/a/b")).of_store(tmp_path).directory == Path("/a/b")
    assert Place.parsed("s3://b").directory is None

"""Storage class, encryption, tags and payer: what a real server keeps of them, and what every request says."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.conftest import Bucket
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import InvalidRequest, PermissionDenied, TierfsError
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.protocol import BufferSource, ObjectPiece
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage

KEY = "test-key"
"""The one that Ceph's key management of tests has."""
CHUNK = "segments/a/b/7/chunk-00000000000000000000-00000000000000000005-e1-0a"
CHUNKS = tuple(CHUNK.replace("-0a", f"-{number:02x}") for number in range(4))
SLOT = "journal/00000000000000000001"
TAGS = {"team": "the logs", "env": "prod"}
ALL = ColdSettings(
    storage_class="STANDARD_IA",
    encryption="aws:kms",
    kms_key=KEY,
    tags="team=the%20logs env=prod",
    requester_pays=True,
)


@pytest.fixture
def storage(rgw_bucket: Bucket) -> Iterator[S3Storage]:
    """As all that Ceph honours is asked for: it has no class but STANDARD."""
    endpoint, bucket = rgw_bucket
    settings = ColdSettings(encryption="aws:kms", kms_key=KEY, tags=ALL.tags, requester_pays=True)
    with closing(S3Storage(S3Location(bucket, "p", endpoint_url=endpoint.endpoint_url), settings)) as storage:
        yield storage


def test_ceph_keeps_what_is_uploaded_as_asked(storage: S3Storage, rgw_bucket: Bucket) -> None:
    bytes_of = random.Random(7).randbytes
    single, parts = bytes_of(100_000), bytes_of(17 * MIB)
    stored = [storage.put(CHUNKS[0], BufferSource(single)), storage.put(CHUNKS[1], BufferSource(parts))]
    pieces = [ObjectPiece(each.name, 0, each.length_bytes, each.etag) for each in reversed(stored)]
    assert storage.compose(CHUNKS[2], pieces).client_bytes <= 2 * len(single), "the server copies what is encrypted"
    storage.put(SLOT, BufferSource(b"entry"))

    endpoint, bucket = rgw_bucket
    with closing(endpoint.client()) as client:
        for name in (*CHUNKS[:3], SLOT):
            head = client.head_object(Bucket=bucket, Key=f"p/{name}")
            assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", KEY), name
        kept = {}
        for name in (CHUNKS[0], SLOT):
            answer = client.get_object_tagging(Bucket=bucket, Key=f"p/{name}")
            kept[name] = {tag["Key"]: tag["Value"] for tag in answer.get("TagSet", [])}
        assert kept == {CHUNKS[0]: TAGS, SLOT: {}}, "no lifecycle rule by a tag reaches the journal"
    assert storage.read_abilities(CHUNKS[0]).presigned_ranges, "a signed URL names the payer, and is right"
    for name, data in zip(CHUNKS, (single, parts, parts + single), strict=False):
        for if_match in (None, storage.stat(name).etag):  # by urllib3, and by our own client
            buffer = memoryview(bytearray(len(data)))
            storage.read_into(name, 0, buffer, if_match=if_match)
            assert bytes(buffer) == data
    url = storage.range_url(CHUNKS[0])
    assert url is not None
    assert ("x-amz-request-payer", "requester") in parse_qsl(urlsplit(url.target).query)
    assert [*storage.lacking("probe/x")] == ["cold.tags (uploads in parts)"], "Ceph 16 drops the tags of these"


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        (ColdSettings(), []),
        (ColdSettings(storage_class="STANDARD", tags="a=b c="), ["cold.tags (uploads in parts)"]),
        # Without a key management for it Ceph answers 200, and stores plain bytes.
        (ColdSettings(encryption="AES256"), ["cold.encryption (single uploads)", "cold.encryption (uploads in parts)"]),
        (ColdSettings(storage_class="STANDARD_IA"), "storage class STANDARD_IA"),
        (ColdSettings(encryption="aws:kms"), "encrypted by aws:kms"),
        (ColdSettings(encryption="aws:kms", kms_key="none-such"), "encrypted by aws:kms, key none-such"),
    ],
)
def test_what_a_server_does_not_do_is_told(
    rgw_bucket: Bucket, settings: ColdSettings, lacking: list[str] | str
) -> None:
    endpoint, bucket = rgw_bucket
    with closing(S3Storage(S3Location(bucket, "p", endpoint_url=endpoint.endpoint_url), settings)) as storage:
        if isinstance(lacking, list):
            assert storage.lacking("probe/x") == lacking
            return
        for size in (5, 17 * MIB):
            with pytest.raises((InvalidRequest, PermissionDenied)) as caught:
                storage.put(CHUNK, BufferSource(bytes(size)))
            assert caught.value.remedy == f"check that the server allows {lacking}: tierfs config"
        with pytest.raises(TierfsError):
            storage.lacking("probe/x")


class Recording(ThreadingHTTPServer):
    """Takes every upload, and keeps what each request said."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Recorder)
        self.said: list[tuple[str, dict[str, str], dict[str, str]]] = []
        """Method and sub-resource; its headers; its query."""


class _Recorder(BaseHTTPRequestHandler):
    server: Recording
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing: the test compares what was said."""

    def _answer(self) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if self.headers.get("Expect") == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        copied = " copy" if "x-amz-copy-source" in self.headers else ""
        resource = next((name for name in ("uploads", "partNumber", "uploadId", "list-type") if name in query), "")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.said.append((f"{self.command} {resource}{copied}".strip(), headers, query))
        self.send_response(404 if self.command == "HEAD" else 200)
        body = b"" if self.command == "HEAD" else _BODIES.get(f"{self.command} {resource}{copied}".strip(), b"")
        self.send_header("ETag", '"etag"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_HEAD = do_GET = do_DELETE = _answer


_BODIES = {
    "POST uploads": b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
    "PUT partNumber copy": b'<CopyPartResult><ETag>"etag"</ETag></CopyPartResult>',
    "POST uploadId": b'<CompleteMultipartUploadResult><ETag>"etag"</ETag></CompleteMultipartUploadResult>',
    "GET list-type": b"<ListBucketResult></ListBucketResult>",
    "GET uploads": b"<ListMultipartUploadsResult></ListMultipartUploadsResult>",
}


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with Recording() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def said(recording: Recording, settings: ColdSettings, name: str) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """Send every kind of request about one object; return the headers and the query of each kind."""
    endpoint_url = f"http://127.0.0.1:{recording.server_port}"
    storage = S3Storage(S3Location("bucket", "p", endpoint_url=endpoint_url), settings)
    recording.said.clear()
    with closing(storage):
        for data in (b"single", bytes(17 * MIB)):
            with pytest.raises(TierfsError):  # its look at what was stored finds nothing
                storage.put(name, BufferSource(data))
        with pytest.raises(TierfsError):
            storage.compose(name, [ObjectPiece("from", 0, 20 * MIB, "etag"), ObjectPiece("from", 5, 20 * MIB, "etag")])
        storage.delete(name)
        assert [*storage.list("")] == []
        with pytest.raises(TierfsError):
            storage.read_into(name, 0, memoryview(bytearray(1)))
    return {kind: (headers, query) for kind, headers, query in recording.said}


MAKING = ("PUT", "POST uploads")
OTHERS = (
    "PUT partNumber",
    "PUT partNumber copy",
    "POST uploadId",
    "HEAD",
    "DELETE",
    "GET list-type",
    "GET uploads",
    "GET",
)


@pytest.mark.parametrize("name", [CHUNK, SLOT])
def test_every_request_says_what_the_settings_ask_for(recording: Recording, name: str) -> None:
    requests = said(recording, ALL, name)
    assert set(requests) >= {*MAKING, *OTHERS} - {"POST uploadId"}
    encryption = {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": KEY}
    of_bytes = {"x-amz-storage-class": "STANDARD_IA", "x-amz-tagging": "team=the%20logs&env=prod"}
    for kind, (headers, query) in requests.items():
        paid = {**headers, **query}.get("x-amz-request-payer")
        assert paid == "requester", kind
        own = {key: value for key, value in headers.items() if key in {**encryption, **of_bytes}}
        expected = encryption | (of_bytes if name == CHUNK else {}) if kind in MAKING else {}
        assert own == expected, kind


def test_without_settings_no_request_asks_for_anything(recording: Recording) -> None:
    for kind, (headers, query) in said(recording, ColdSettings(), CHUNK).items():
        named = [key for key in {**headers, **query} if key.startswith(("x-amz-server", "x-amz-storage", "x-amz-tag"))]
        assert (named, "x-amz-request-payer" in {**headers, **query}) == ([], False), kind

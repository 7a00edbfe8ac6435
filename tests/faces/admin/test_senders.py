"""Hosts that send their logs: what their tokens open, and what of their requests is refused."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.app.follow.served import Host, ServedStore, serving
from tierfs.app.follow.messages import parse_request
from tierfs.app.follow.server import AdminServer, ServerAddress
from tierfs.base.words.errors import InvalidRequest, PermissionDenied
from tierfs.faces.admin.guard import Admission, refusal
from tierfs.faces.admin.senders import SenderTokens, may_follow

TOKEN, OTHER = "a-token-of-enough-characters", "another-token-of-enough-characters"
HEADERS = [(b"host", b"localhost"), (b"authorization", f"Bearer {OTHER}".encode())]
RANGE = {"path": "/a", "file_end": 2}
APPEND = {"name": "a", "expect_offset": 0, "length": 2, "range": RANGE}


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("/v1/follow/hosts/web1", True),
        ("/v1/followed/hosts/web1/sub", True),
        ("/v1/follow//hosts//web1/", True),
        ("/v1/follow/hosts/web10", False),
        ("/v1/follow/hosts/web1/../web2", False),
        ("/v1/follow/hosts", False),
        ("/v1/followed/", False),
        ("/v1/bytes/hosts/web1/a", False),
        ("/v1/append/hosts/web1/a", False),
        ("/v1/rm/hosts/web1", False),
        ("/", False),
        ("/metrics", False),
    ],
)
def test_a_token_of_a_sender_opens_its_directory_alone(path: str, may: bool) -> None:
    assert may_follow(path, "hosts/web1") is may
    admission = Admission(TOKEN, frozenset({"localhost"}), senders=SenderTokens({OTHER.encode(): "hosts/web1"}))
    refused = refusal(admission, HEADERS, path.encode(), method="POST")
    assert (None if refused is None else refused.status) == (None if may else 403)
    assert refusal(admission, [HEADERS[0]], path.encode(), method="POST") is not None


def test_tokens_are_read_from_a_private_file(tmp_path: Path) -> None:
    file, senders = tmp_path / "senders", SenderTokens()
    file.write_text(f"# hosts\n\nhosts/web1 {TOKEN}\n/ {OTHER}\n")
    with pytest.raises(PermissionDenied, match="other users can read"):
        senders.read(file)
    file.chmod(0o600)
    senders.read(file)
    assert [senders.directory_of(token.encode()) for token in (TOKEN, OTHER, TOKEN[:-1])] == ["hosts/web1", "", None]
    for line in ("hosts/web1 short", TOKEN, f"a {TOKEN}\nb {TOKEN}", f"a/../b {TOKEN}"):
        file.write_text(line)
        with pytest.raises(InvalidRequest):
            senders.read(file)
    assert senders.directory_of(TOKEN.encode()) == "hosts/web1", "those of before stay"


def test_a_sender_with_a_token_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        send(served, tmp_path)


def send(served: ServedStore, root: Path) -> None:
    served.stop()
    (served.path / "senders").write_text(f"hosts/web1 {OTHER}\n")
    (served.path / "senders").chmod(0o600)
    served.start(senders="senders")
    (root / "token").write_text(OTHER)
    host = Host(root / "web1", served.port, token=root / "token")
    host.write("one\n")
    host.look()
    host.restart()
    assert served.text("hosts/web1/app.log") == "one\n"
    elsewhere = Host(root / "web2", served.port, token=root / "token", into="hosts/web2")
    elsewhere.write("two\n")
    with pytest.raises(PermissionDenied, match="this token is only for following into hosts/web1") as refused:
        elsewhere.look()
    assert refused.value.remedy == "give that directory, as --into of follow and follow --list"
    address = ServerAddress("127.0.0.1", served.port, is_encrypted=False, token_file=root / "token")
    with closing(AdminServer(address)) as server, pytest.raises(PermissionDenied):
        server.get("/v1/status")


def body(head: Any, data: bytes = b"") -> bytearray:
    return bytearray(json.dumps(head).encode() + b"\n" + data)


@pytest.mark.parametrize(
    ("head", "data"),
    [
        ([], b""),
        ({}, b""),
        ({"sender": ""}, b""),
        ({"sender": "a b"}, b""),
        ({"sender": "a\ud800"}, b""),
        ({"sender": "a", "other": 1}, b""),
        ({"sender": "a"}, b"x"),
        ({"sender": "a", "appends": [APPEND]}, b"x"),
        ({"sender": "a", "appends": [APPEND]}, b"xyz"),
        ({"sender": "a", "appends": [APPEND, APPEND]}, b"xyxy"),
        ({"sender": "a", "appends": [{**APPEND, "name": "../b"}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "name": ""}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "name": "a\ud800"}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "expect_offset": -1}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "expect_offset": True}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "expect_offset": 2**64}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "file_end": 5}}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "file_start": 3}}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "tail_length": 3}}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "head_length": 257}}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "head_crc32c": 2**32}}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "gap": "a\ud800"}}]}, b"xy"),
        ({"sender": "a", "appends": [{**APPEND, "range": {**RANGE, "path": ""}}]}, b"xy"),
        ({"sender": "a", "start": {"at_ms": 1}}, b""),
        ({"sender": "a", "start": {"at_ms": 1, "sources": [{"path": "/a", "below": 5}]}}, b""),
        ({"sender": "a", "looks": {"a": 1 << 21}}, b""),
        ({"sender": "a", "looks": {"a": 1, "b": 1}}, b""),
        ({"sender": "a", "looks": []}, b""),
    ],
)
def test_what_a_host_sends_is_checked(head: Any, data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(body(head, data), "hosts/web1")


def test_a_request_has_its_lines_one_after_the_other() -> None:
    second = {**APPEND, "name": "sub/b", "length": 3, "range": {**RANGE, "path": "/b\udcff", "unended": True}}
    request = parse_request(body({"sender": "a", "appends": [APPEND, second]}, b"xy\nzz"), "hosts/web1")
    assert [(each.segment, bytes(each.data)) for each in request.appends] == [
        ("hosts/web1/a", b"xy"),
        ("hosts/web1/sub/b", b"\nzz"),  # after the end of a line that its file lacks
    ]
    assert [(row.followed.sender, row.followed.path) for row in request.appends] == [("a", b"/a"), ("a", b"/b\xff")]
    with pytest.raises(InvalidRequest, match="line of JSON"):
        parse_request(bytearray(b"no json"), "")

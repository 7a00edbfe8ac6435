"""The admin API does what the commands do, and answers what they print with --json."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tests.commands import tierfs
from tests.faces.admin.conftest import Got, Served, ask, serving
from tests.mount.waiting import eventually
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage


def test_an_append_is_read_by_commands_and_by_the_api(served: Served) -> None:
    done = served.ask("POST", "/v1/append/logs/web", b"one\ntwo\n")
    assert (done.status, done.json) == (200, {"segment": "logs/web", "start": 0, "end": 8})
    assert served.ask("POST", "/v1/append/logs%2Fweb?expect_offset=8", b"three\n").json["end"] == 14
    assert served.ask("GET", "/v1/bytes/logs/web").body == b"one\ntwo\nthree\n"
    assert tierfs("cat", "logs/web", store=served.path).out == "one\ntwo\nthree\n"


def test_the_answers_are_those_of_the_commands(served: Served) -> None:
    served.ask("POST", "/v1/append/logs/web", b"x" * 1000)
    assert eventually(lambda: json.loads(tierfs("--json", "info", "logs/web", store=served.path).out)["writer"] is None)
    for target, words in (
        ("info/logs/web", ["info", "logs/web"]),
        ("map/logs/web", ["info", "--map", "logs/web"]),
    ):
        assert served.ask("GET", f"/v1/{target}").json == tierfs("--json", *words, store=served.path).json
    policy = tierfs("--json", "config", "logs", store=served.path).json
    assert served.ask("GET", "/v1/policy/logs").json == policy
    status = tierfs("--json", "status", store=served.path).json
    answered = served.ask("GET", "/v1/status").json
    assert answered.keys() == status.keys()
    assert answered["mounts"] == []
    assert answered == {**status, "local_free_bytes": answered["local_free_bytes"]}


def test_listings_come_in_pages(served: Served) -> None:
    for number in range(5):
        served.ask("POST", f"/v1/append/d/s{number}", b"")
    first = served.ask("GET", "/v1/ls/d?limit=2").json
    assert ([row["name"] for row in first["names"]], first["path"], first["next"]) == (["s0", "s1"], "d", "s1")
    rest = served.ask("GET", "/v1/ls/d?limit=3&after=s1").json
    assert ([row["name"] for row in rest["names"]], rest["next"]) == (["s2", "s3", "s4"], None)
    assert [row["kind"] for row in served.ask("GET", "/v1/ls/").json["names"]] == ["directory"]
    assert served.ask("GET", "/v1/ls/d/s1").json["names"][0]["length"] == 0
    assert served.ask("GET", f"/v1/ls/d?after={'s' * 256}").json["error"] == "InvalidRequest", "longer than any name"


def test_the_life_of_a_segment(served: Served) -> None:
    def post(target: str, body: bytes = b"") -> Got:
        return served.ask("POST", f"/v1/{target}", body)

    post("append/a", b"0123456789")
    assert post("append/b?seal=true", b"more").json == {"segment": "b", "start": 0, "end": 4}
    assert post("append/b", b"x").json["error"] == "Sealed"
    assert (post("concat/a?source=b").json["start"], served.ask("GET", "/v1/info/b").status) == (10, 404)
    assert (post("seal/a").json["already_sealed"], post("seal/a").json["already_sealed"]) == (False, True)
    assert post("unseal/a").json == {"segment": "a", "length": 14, "already_open": False}
    assert post("append/a", b"!").json["start"] == 14
    assert post("truncate/a?before=4").json["bytes"] == 4
    assert served.ask("GET", "/v1/bytes/a").body == b"456789more!"
    assert post("mkdir/x/y").status == 201
    assert post("rm/x").json["error"] == "IsDirectory"
    assert post("rm/x?recursive=1").status == 200
    assert (post("rm/a").json["segments"], served.ask("GET", "/v1/info/a").status) == (1, 404)
    assert "a" in tierfs("ls", "--removed", store=served.path).out


def test_a_clone_and_a_rename_that_an_append_follows(served: Served) -> None:
    """A name is the client's: what the server has open under the old one is not appended to by that name."""

    def post(target: str, body: bytes = b"") -> Got:
        return served.ask("POST", f"/v1/{target}", body)

    post("append/a", b"0123456789")
    cloned = post("clone/a?target=d/c&to=4")
    expected = {"source": "a", "target": "d/c", "start": 0, "end": 4, "chunks": 1, "successor": None}
    assert cloned.json == expected
    assert post("mv/a?target=b").json == {"source": "a", "target": "b", "segments": 1}
    assert post("append/a", b"new").json["start"] == 0
    assert post("append/d/c", b"x").json["start"] == 4
    assert tierfs("mv", "d", "e", store=served.path).code == 0
    assert post("append/d/c", b"y").json["start"] == 0
    read = {name: served.ask("GET", f"/v1/bytes/{name}").body for name in ("a", "b", "e/c", "d/c")}
    assert read == {"a": b"new", "b": b"0123456789", "e/c": b"0123x", "d/c": b"y"}
    assert (post("mv/a").status, post("clone/a?target=b").json["error"]) == (400, "AlreadyExists")


def test_policies_are_set_unset_and_refused(served: Served) -> None:
    body = json.dumps({"chunk_bytes": "1MiB", "retention_needs_offload": False, "trash_age": 60}).encode()
    done = served.ask("PATCH", "/v1/policy/new/place", body).json
    assert done["policy"]["chunk_bytes"] == {"value": 1 << 20, "origin": "directory", "set_on": "new/place"}
    assert done["policy"]["retention_needs_offload"]["value"] is False
    level = served.ask("PATCH", "/v1/policy/new", b'{"compression": "auto", "compression_level": 9}').json["policy"]
    assert (level["compression"]["value"], level["compression_level"]["value"]) == ("auto", 9)
    unset = served.ask("PATCH", "/v1/policy/new/place", b'{"chunk_bytes": null}').json["policy"]["chunk_bytes"]
    assert unset["origin"] != "directory"
    for bad in (
        b"[]",
        b"{",
        b'{"chunk_bytes": []}',
        b'{"chunk_bites": "1"}',
        b'{"chunk_bytes": "much"}',
        b'{"compression_level": 0}',
    ):
        assert served.ask("PATCH", "/v1/policy/new", bad).status == 400


def test_an_offload_has_a_status_and_a_second_one_waits(served: Served) -> None:
    assert served.ask("GET", "/v1/offload/d").json["state"] == "not run"
    served.ask("POST", "/v1/append/d/s", b"bytes")
    begun = served.ask("POST", "/v1/offload/d")
    assert (begun.status, begun.json["path"]) == (202, "d")
    assert eventually(lambda: served.ask("GET", "/v1/offload/d").json["state"] == "done")
    status = served.ask("GET", "/v1/offload/d").json
    assert (status["result"]["bytes"], status["error"]) == (5, None)
    assert served.ask("GET", "/v1/info/d/s").json["tiers"]["cold"]["bytes"] == 5


def test_an_offload_that_fails_says_why(served: Served, path: Path) -> None:
    served.ask("POST", "/v1/append/d/s", b"bytes")
    (path.parent / "cold").rename(path.parent / "away")
    assert served.ask("POST", "/v1/offload/d").status == 202
    assert eventually(lambda: served.ask("GET", "/v1/offload/d").json["state"] == "failed")
    error = served.ask("GET", "/v1/offload/d").json["error"]
    assert (error["kind"], bool(error["message"]), bool(error["remedy"])) == ("WrongColdTier", True, True)
    (path.parent / "away").rename(path.parent / "cold")


def test_a_consolidation_compresses_and_has_a_status(served: Served) -> None:
    assert served.ask("GET", "/v1/consolidate/d").json["state"] == "not run"
    for _ in range(2):
        served.ask("POST", "/v1/append/d/s", b"a line of a log\n" * 1000)
        served.ask("POST", "/v1/offload/d")
        assert eventually(lambda: served.ask("GET", "/v1/offload/d").json["state"] == "done")
    served.ask("PATCH", "/v1/policy/d", b'{"compression": "auto"}')
    for compress in ("", "?compress"):
        begun = served.ask("POST", f"/v1/consolidate/d{compress}")
        assert (begun.status, begun.json["compress"]) == (202, bool(compress))
        assert eventually(lambda: served.ask("GET", "/v1/consolidate/d").json["state"] == "done")
        result = served.ask("GET", "/v1/consolidate/d").json["result"]
        assert ("stored_bytes" in result) is bool(compress)
    served.ask("PATCH", "/v1/policy/d", b'{"compression": "off"}')
    assert served.ask("GET", "/v1/info/d/s").json["tiers"]["cold"]["chunks"] == 1
    assert served.ask("GET", "/v1/bytes/d/s").body == b"a line of a log\n" * 2000
    assert served.ask("POST", "/v1/consolidate/d?compress=perhaps").status == 400


def test_an_offload_with_metadata_of_the_caller(served: Served) -> None:
    tierfs("append", "meta/s", store=served.path, stdin=bytes(5 * 1024 * 1024))
    for refused in ("no-json", '["a"]', '{"a": 1}', '{"store": "x"}'):
        assert served.ask("POST", f"/v1/offload/meta?metadata={quote(refused)}").status == 400
    wanted = quote(json.dumps({"Team": "a b"}))
    begun = served.ask("POST", f"/v1/offload/meta?metadata={wanted}")
    assert (begun.status, begun.json["metadata"]) == (202, {"team": "a b"})
    assert eventually(lambda: served.ask("GET", "/v1/offload/meta").json["state"] == "done")
    cold = DirectoryStorage(served.path.parent / "cold")
    (made,) = cold.list("segments/meta/")
    assert cold.stat(made.name).metadata["team"] == "a b"


def test_an_offload_to_a_position(served: Served) -> None:
    for number in (1, 2):
        tierfs("ledger", "create", "t", "--id", number, store=served.path)
        tierfs("ledger", "append", f"t/{number:020}", store=served.path, stdin=b"entry")
        tierfs("seal", f"t/{number:020}", store=served.path)
    assert served.ask("POST", "/v1/offload/t?before=2:9").status == 202
    assert eventually(lambda: served.ask("GET", "/v1/offload/t").json["state"] == "failed")
    assert served.ask("POST", "/v1/offload/t?before=x").status == 400
    served.ask("POST", "/v1/offload/t?before=2:0")
    assert eventually(lambda: served.ask("GET", "/v1/offload/t").json["state"] == "done")
    assert served.ask("GET", "/v1/offload/t").json["result"]["first_unoffloaded"] == "2:0"
    assert served.ask("GET", f"/v1/info/t/{1:020}").json["ledger"]["offload"] == "complete"


REFUSED = [
    ("GET", "/v1/info/none", 404, "NotFound"),
    ("GET", "/v1/info/d", 400, "IsDirectory"),
    ("GET", "/v1/nothing", 404, "NotFound"),
    ("GET", "/none", 404, "NotFound"),
    ("PUT", "/v1/info/s", 405, "InvalidRequest"),
    ("GET", "/v1/append/s", 405, "InvalidRequest"),
    ("POST", "/v1/append/", 400, "InvalidRequest"),
    ("POST", "/v1/append/d", 400, "IsDirectory"),
    ("POST", "/v1/append/a/../b", 400, "InvalidRequest"),
    ("POST", "/v1/append/s?expect_offset=9", 409, "OffsetMismatch"),
    ("POST", "/v1/append/s?expect_offset=-1", 400, "InvalidRequest"),
    ("POST", "/v1/append/s?expected=0", 400, "InvalidRequest"),
    ("POST", "/v1/append/s?seal=maybe", 400, "InvalidRequest"),
    ("POST", "/v1/append/s?seal=1&seal=0", 400, "InvalidRequest"),
    ("POST", "/v1/append/%FF", 400, "InvalidRequest"),
    ("POST", "/v1/truncate/s", 400, "InvalidRequest"),
    ("POST", "/v1/truncate/s?before=99", 400, "InvalidRequest"),
    ("POST", "/v1/concat/s", 400, "InvalidRequest"),
    ("POST", "/v1/concat/s?source=none", 404, "NotFound"),
    ("POST", "/v1/rm/", 400, "InvalidRequest"),
    ("POST", "/v1/rm/none", 404, "NotFound"),
    ("POST", "/v1/offload/none", 404, "NotFound"),
    ("POST", "/v1/consolidate/none", 404, "NotFound"),
    ("GET", "/v1/bytes/s?read_priority=none", 400, "InvalidRequest"),
    ("GET", "/v1/ls/d?limit=1001", 400, "InvalidRequest"),
]
"""Method, target, status, and the kind of the error."""


def test_what_is_refused_changes_nothing(served: Served) -> None:
    served.ask("POST", "/v1/append/s", b"12345")
    served.ask("POST", "/v1/mkdir/d")
    for method, target, status, error in REFUSED:
        got = served.ask(method, target, b"x" if method == "POST" else None)
        assert (got.status, got.json["error"]) == (status, error), (method, target)
        assert {"message", "remedy"} <= set(got.json)
        assert got.json.get("actual_length") == (5 if error == "OffsetMismatch" else None)
    assert [row["name"] for row in served.ask("GET", "/v1/ls/").json["names"]] == ["d", "s"]
    assert served.ask("GET", "/v1/bytes/s").body == b"12345"


def test_health_readiness_and_metrics(served: Served) -> None:
    assert served.ask("GET", "/v1/health").json["healthy"] is True
    ready = served.ask("GET", "/v1/ready")
    assert (ready.status, ready.json["ready"]) == (503, False)
    assert "no mount or daemon" in ready.json["why"][0]
    assert b"tierfs_uptime_seconds" in served.ask("GET", "/metrics").body
    assert served.ask("GET", "/v1/failures").json == {"failures": []}
    assert served.ask("HEAD", "/v1/health").body == b""


def test_a_store_is_served_by_one_process_alone(served: Served) -> None:
    refused = tierfs("admin", store=served.path, check=False)
    assert (refused.code, str(served.pid) in refused.err) == (5, True)


def test_a_killed_server_leaves_nothing_in_the_way(path: Path) -> None:
    with serving(path) as served:
        assert served.ask("POST", "/v1/append/s", b"acknowledged").status == 200
        served.stop(9)
        assert tierfs("cat", "s", store=path).out == "acknowledged"
        tierfs("admin", store=path)
        assert served.ask("POST", "/v1/append/s", b"!").json["start"] == 12


def test_connections_are_kept(served: Served) -> None:
    with closing(served.connection()) as connection:
        ends = [ask(connection, "POST", "/v1/append/s", b"x").json["end"] for _ in range(20)]
    assert ends == list(range(1, 21))

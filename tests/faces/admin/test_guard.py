"""Who may ask: no token, peer, Host or Origin passes that should not, each refused at a real server too."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.faces.admin.conftest import Served, ask, serving
from tierfs.faces.admin.guard import Admission, refusal

TOKEN = "a-token-of-enough-characters"
HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
RIGHT = [(b"host", b"localhost:9160"), (b"authorization", f"Bearer {TOKEN}".encode())]

HEADERS = [
    (RIGHT, None),
    ([(b"host", b"[::1]:9160"), RIGHT[1]], None),
    ([(b"host", b"LOCALHOST"), (b"authorization", f"bearer  {TOKEN} ".encode())], None),
    ([RIGHT[0]], 401),
    ([RIGHT[0], (b"authorization", b"")], 401),
    ([RIGHT[0], (b"authorization", TOKEN.encode())], 401),
    ([RIGHT[0], (b"authorization", f"Basic {TOKEN}".encode())], 401),
    ([RIGHT[0], (b"authorization", f"Bearer {TOKEN[:-1]}".encode())], 401),
    ([RIGHT[0], (b"authorization", f"Bearer {TOKEN}x".encode())], 401),
    ([RIGHT[0], (b"authorization", b"Bearer \xff\xfe")], 401),
    ([RIGHT[0], (b"authorization", b"Bearer")], 401),
    ([*RIGHT, RIGHT[1]], 401),
    ([RIGHT[1]], 400),
    ([RIGHT[0], *RIGHT], 400),
    *(
        ([(b"host", host), RIGHT[1]], 421)
        for host in (
            b"evil.example",
            b"localhost.evil.example",
            b"localhost.",
            b"127.0.0.2",
            b"[::2]",
            b"localhost,evil.example",
            b"%6cocalhost",
        )
    ),
    *(
        ([(b"host", host), RIGHT[1]], 400)
        for host in (
            b"",
            b":9160",
            b"evil.example:80@localhost",
            b"localhost:80@evil.example",
            b"user@localhost",
            b"user:secret@localhost",
            b"localhost:80:80",
            b"localhost:x",
            b"localhost:123456",
            b"localhost, evil.example",
            b"localhost evil.example",
            b"localhost/",
            b"http://localhost",
            b"localhost\t",
            b"localhost\xa0",
            b"localhost%",
            b"[::1",
            b"::1",
            b"[::1]x",
            b"[localhost]",
        )
    ),
    *(([(b"host", host), RIGHT[1]], None) for host in (b"localhost", b"localhost:", b"127.0.0.1:80", b"[::1]")),
    ([*RIGHT, (b"origin", b"http://localhost:9160")], 403),
    ([*RIGHT, (b"origin", b"null")], 403),
]

TARGETS = [
    (b"/v1/status", None),
    (b"http://localhost/v1/status", None),
    (b"HTTPS://LOCALHOST:9160/v1/status?a=b", None),
    (b"http://evil.example/v1/status", 421),
    (b"http://localhost@evil.example/v1/status", 400),
    (b"http://evil.example@localhost/v1/status", 400),
    (b"http:///v1/status", 400),
    (b"ftp://localhost/v1/status", 400),
    (b"localhost:80", 400),
    (b"/v1/append/logs/a#b", 400),
]


def test_headers_decide_who_is_let_in() -> None:
    for headers, status in HEADERS:
        refused = refusal(Admission(TOKEN, HOSTS), headers, b"/v1/status")
        assert (None if refused is None else refused.status) == status, headers
    for target, status in TARGETS:
        for host in (b"localhost", b"evil.example"):
            refused = refusal(Admission(TOKEN, HOSTS), [(b"host", host), RIGHT[1]], b"/v1/status", target)
            wanted = 421 if host == b"evil.example" and target[:1] == b"/" else status
            assert (None if refused is None else refused.status) == wanted, (host, target)
    on_socket = Admission()
    assert refusal(on_socket, [(b"host", b"anything")], b"/v1/status") is None
    for headers, path, status in (
        ([], b"/", 400),
        ([(b"host", b"x"), (b"origin", b"null")], b"/", 403),
        ([(b"host", b"x")], b"/%ff", 400),
    ):
        refused = refusal(on_socket, headers, path)
        assert refused is not None
        assert refused.status == status


def test_the_socket_is_the_owner_s(served: Served) -> None:
    status = served.socket.stat()
    assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.geteuid())
    assert "admin.token" not in os.listdir(served.path), "nobody asked for TCP"
    served.stop()
    assert not served.socket.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_the_kernel_tells_who_asks(served: Served) -> None:
    """Also where somebody opened the directory and the socket to all."""
    for directory in (served.path, *served.path.parents):
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o755)
    served.socket.chmod(0o777)
    client = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[2]))\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])\n"
        "try:\n"
        "    s.sendall(b'GET /v1/health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(s.recv(99)[:12])\n"
        "except OSError:\n"
        "    print(b'')\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", client, "admin.sock", str(uid)],
            cwd=served.path,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for uid in (0, 65534)
    ]
    assert told == ["b'HTTP/1.1 200'\n", "b''\n"]


def test_tcp_asks_for_the_token_and_the_host(path: Path, port: int) -> None:
    with serving(path, listen=f"127.0.0.1:{port}"):
        file = path / "admin.token"
        assert file.stat().st_mode & 0o777 == 0o600
        token = file.read_text().strip()
        for host, given, status in (
            ("localhost", f"Bearer {token}", 200),
            ("127.0.0.1", f"Bearer {token}", 200),
            ("evil.example", f"Bearer {token}", 421),
            ("localhost", f"Bearer {token[:-1]}", 401),
            ("localhost", "", 401),
        ):
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                got = ask(connection, "POST", "/v1/append/s", b"x", Host=host, Authorization=given)
                pulsars = ask(
                    connection, "GET", "/admin/v2/namespaces/a/n/offloadThreshold", Host=host, Authorization=given
                )
            assert (got.status, pulsars.status) == (status, 404 if status == 200 else status), (host, given)
            assert token not in got.body.decode()
            if status == 401:
                assert got.headers["www-authenticate"].startswith("Bearer")
        assert tierfs("cat", "s", store=path).out == "xx"
        assert token not in "".join(file.read_text() for file in (path / "log").iterdir())
    with serving(path, listen=f"127.0.0.1:{port}"):
        assert file.read_text().strip() == token, "clients that have it go on"


def test_a_server_with_a_certificate_answers_over_tls_alone(path: Path, port: int, certificate: Path) -> None:
    settings = {"certificate": str(certificate), "key": str(certificate.with_name("key.pem"))}
    with serving(path, listen=f"0.0.0.0:{port}", names="localhost", **settings):
        headers = {"Authorization": f"Bearer {(path / 'admin.token').read_text().strip()}"}
        context = ssl.create_default_context(cafile=certificate)
        with closing(http.client.HTTPSConnection("localhost", port, timeout=30, context=context)) as connection:
            assert ask(connection, "GET", "/v1/health", **headers).status == 200
        clear = http.client.HTTPConnection("localhost", port, timeout=30)
        with closing(clear), pytest.raises((OSError, http.client.HTTPException)):
            ask(clear, "GET", "/v1/health", **headers)


@pytest.mark.parametrize(
    ("settings", "token", "mode", "said"),
    [
        ({"listen": "0.0.0.0:1"}, None, 0o600, "the token would be sent unencrypted"),
        ({"listen": "nowhere"}, None, 0o600, "expected HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, None, 0o600, "expected HOST:PORT"),
        ({"listen": "127.0.0.1:0", "certificate": "none.pem"}, None, 0o600, "cannot use admin.certificate"),
        ({"listen": "127.0.0.1:0"}, "short", 0o600, "invalid token in"),
        ({"listen": "127.0.0.1:0"}, TOKEN, 0o644, "other users can read"),
        ({"listen": "192.0.2.1:1", "certificate": "cert.pem", "key": "key.pem"}, TOKEN, 0o600, "cannot use"),
    ],
)
def test_what_would_not_be_safe_is_not_served(
    path: Path, settings: dict[str, str], token: str | None, mode: int, said: str
) -> None:
    if token is not None:
        (path / "admin.token").write_text(token)
        (path / "admin.token").chmod(mode)
    lines = "\n".join(f'{key} = "{value}"' for key, value in settings.items())
    (path / "store.toml").write_text(f"[admin]\n{lines}\n")
    refused = tierfs("admin", store=path, check=False)
    assert refused.code != 0
    assert said in refused.err
    assert not (path / "admin.sock").exists()

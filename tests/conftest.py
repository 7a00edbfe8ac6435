"""Fixtures every test shares: stores, S3 servers, buckets, a clean AWS environment, and the watch on warnings."""

from __future__ import annotations

import getpass
import importlib
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Awaitable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from fsspec.config import conf
from hypothesis import settings

from tests import few_messages, together
from tests.collected_once import CollectedOnce
from tests.doubles import ballast as sparse_ballast
from tests.doubles.manual_clock import ManualClock
from tests.doubles.page_cache import PAGE_CACHES
from tests.doubles.scripted_storage import ScriptedStorage
from tests.leftovers import unmount_leftovers
from tests.not_run import NotRun
from tests.servers import quick_java, versity
from tests.servers.certificates import Authority
from tests.servers.clouds import AZURITE, AzureServer, GcsServer, program
from tests.servers.endpoint import ACCESS_KEY, REGION, SECRET_KEY, S3Endpoint
from tests.servers.hdfs_server import DONE, HdfsRoot, HdfsServer, missing_tools
from tests.servers.moto_server import MotoServer
from tests.servers.process import ServerError
from tests.servers.rgw import RgwServer
from tests.servers.scripted_http import Script, ScriptedHttp, Serve, ServerTls
from tests.servers.shared import shared
from tests.servers.ssh import PROGRAM, SshServer
from tests.servers.versity import VersityServer
from tests.short_ids import ShortIds
from tests.stores import TestStore, open_test_store
from tierfs.base.system import memory_limit, osio
from tierfs.engine.chunkstore.http.tls import TlsClient
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import environment
from tierfs.faces.doctor.machine import available_bytes
from tierfs.tiering.garbage import ballast

settings.register_profile("tierfs", deadline=None)  # a busy machine is no failure
settings.load_profile("tierfs")

_Server = TypeVar("_Server")

Bucket = tuple[S3Endpoint, str]
"""An endpoint and the name of an empty bucket there."""

COLLECTED = pytest.StashKey[frozenset[str]]()
"""The tests of this run, with those that `-k` and `-m` leave out."""

_LONG_LIMIT_S = 300

_IN_MEMORY = Path("/dev/shm")
_IN_MEMORY_BYTES, _MEMORY_BYTES = 6 << 30, 16 << 30
"""Free space there that a whole run may need, and memory, with the servers and JVMs: 5.5 and 14 GiB were seen."""


def pytest_configure(config: pytest.Config) -> None:
    """Put temporary directories into memory where there is room; PYTEST_DEBUG_TEMPROOT names another place.

    On a disk nine tenths of a run are syncs: tests of recovery, offload and trash took 129 s of wall time on ext4, 12 s
    on tmpfs. What is durable is proved by doubles that record syncs and by the simulated disk, which loses power.
    """
    has_room = os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free >= _IN_MEMORY_BYTES
    if has_room and available_bytes(memory_limit.find()) >= _MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))
    if not hasattr(config, "workerinput"):
        place = os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()
        unmount_leftovers(Path(place).resolve() / f"pytest-of-{getpass.getuser()}")
    config.pluginmanager.register(NotRun())
    config.pluginmanager.register(ShortIds())
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(CollectedOnce())
        few_messages.tell_less(config)
    elif config.getoption("dist", "no") == "loadgroup":
        config.pluginmanager.register(importlib.import_module("tests.spread"))


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use Ceph, so that none needs to remember; those that share a JVM or emulator share a process.

    Where tests run side by side, those with a long limit come first: at the end each would keep one process alone.
    """
    config.stash[COLLECTED] = frozenset(item.nodeid for item in items)
    for item in items:
        together.mark(item)
    if hasattr(config, "workerinput"):
        items.sort(key=_limit_s, reverse=True)


def _limit_s(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return limit.args[0] if limit is not None and limit.args and limit.args[0] >= _LONG_LIMIT_S else 0


@pytest.fixture(scope="session", autouse=True)
def aws_environment() -> Iterator[None]:
    """Set the test servers' keys and nothing of the user's: no profile, endpoint, proxy or metadata service."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "AWS_PROFILE",
            "AWS_SESSION_TOKEN",
            "AWS_REGION",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_CA_BUNDLE",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setenv("no_proxy", "127.0.0.1,localhost")
        yield


@pytest.fixture(scope="session", autouse=True)
def spark_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """JVMs of Spark start quickly, also in processes that tests start, and nothing of the user's Spark counts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_java.install(tmp_path_factory.mktemp("java")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def ballast_without_blocks() -> Iterator[None]:
    """What stores set aside for a full disk takes no blocks, but on small disks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ballast, "create", sparse_ballast.create)
        yield


@pytest.fixture(scope="session", autouse=True)
def small_maps() -> Iterator[None]:
    """The metadata of a store in this process take 64 GiB of address space, not 1 TiB, of which there are 127.

    Deaths of the World and replaced stores leave theirs open, as do drivers of Spark: one process of a run had so many
    that no store could be opened any more.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "MAP_SIZE_BYTES", 64 << 30)
        yield


@pytest.fixture(autouse=True)
def page_cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """In this process the page cache tells of every file, or is one of PAGE_CACHES that the test names.

    `both_local_paths` runs a test with the page cache that tells and with the one that cannot.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(osio, "PageCache", PAGE_CACHES[getattr(request, "param", "told")])
        yield


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """pytest's directory; the 256 of a store that hold no chunk go quickly, a third of what removing a store takes."""
    yield tmp_path
    with suppress(OSError):  # the test has removed it, say
        for chunks in (store / "chunks" for store in tmp_path.iterdir()):
            if chunks.is_dir():
                _remove_empty(chunks)


def _remove_empty(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        for name in os.listdir(fd):
            with suppress(OSError):  # it holds chunks, or is a file
                os.rmdir(name, dir_fd=fd)
    finally:
        os.close(fd)


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `store`."""
    return ManualClock()


@pytest.fixture
def storage(clock: ManualClock) -> ScriptedStorage:
    """The cold tier of `store`."""
    return ScriptedStorage(MemoryStorage(clock))


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> dict[str, str] | None:
    """The policy of `store`: the module's POLICY, if it has one. A test may have it as a parameter."""
    return getattr(request.module, "POLICY", None)


@pytest.fixture
def store(
    tmp_path: Path,
    clock: ManualClock,
    storage: ScriptedStorage,
    policy: dict[str, str] | None,
    request: pytest.FixtureRequest,
) -> Iterator[TestStore]:
    """A store of its own for each test; its settings are the module's SETTINGS, if it has any."""
    settings = getattr(request.module, "SETTINGS", None)
    with open_test_store(tmp_path / "store", policy=policy, settings=settings, clock=clock, cold=storage) as opened:
        yield opened


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that no client trusts unless it is told to."""
    return Authority.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def server_tls(authority: Authority) -> ServerTls:
    """TLS of servers within tests, and of clients that trust them."""
    trusting = TlsClient(str(authority.certificate))
    return ServerTls(authority.issue("within").serving(), trusting, authority.certificate)


@pytest.fixture(params=["http", "https"])
def serve(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Starts a scripted server, plain or encrypted; clients of the environment trust it."""
    tls: ServerTls | None = None
    if request.param == "https":
        tls = request.getfixturevalue("server_tls")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(request.getfixturevalue("authority").certificate))

    def start(nursery: trio.Nursery, *scripts: Script) -> Awaitable[ScriptedHttp]:
        return ScriptedHttp(scripts, tls).start(nursery)

    return start


_AT_THE_END = pytest.StashKey[ExitStack]()


def _common(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a directory that all processes of the run have."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name


def _until_the_end(config: pytest.Config, server: AbstractContextManager[_Server]) -> _Server:
    """Enter a server that ends with the run.

    Not in a fixture's end: that is within the time limit of the last test, and others may go on for minutes.
    """
    try:
        return config.stash.setdefault(_AT_THE_END, ExitStack()).enter_context(server)
    except ServerError as exc:
        pytest.fail(str(exc), pytrace=False)


@pytest.fixture(scope="session")
def rgw_server(
    aws_environment: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> RgwServer:
    """Ceph RGW with HTTP and HTTPS, started once for the run: its processes share it, with buckets of their own."""
    common = _common(tmp_path_factory, "rgw")
    authority = Authority(common / "authority")
    server = RgwServer(common / "ceph", authority)

    def start() -> str:
        Authority.create(authority.directory)
        server.start()
        return server.endpoint_url

    server.join(_until_the_end(pytestconfig, shared(common, start, server.stop)))
    return server


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> HdfsServer:
    """A real HDFS, started once for the run; skipped where its jars cannot be had."""
    if missing := missing_tools():
        pytest.skip(f"HDFS needs {' and '.join(missing)}")
    if not DONE.exists():
        pytest.skip("HDFS needs its jars: make test-deps")
    common = _common(tmp_path_factory, "hdfs")
    server = HdfsServer(common / "files")

    def start() -> str:
        server.start()
        return server.address

    server.join(_until_the_end(pytestconfig, shared(common, start, server.stop)))
    return server


@pytest.fixture(scope="session")
def versity_server(
    aws_environment: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> VersityServer:
    """A second kind of S3 server, started once for each process; skipped where it cannot be built."""
    if reason := versity.why_not():
        pytest.skip(reason)
    return _until_the_end(pytestconfig, VersityServer(tmp_path_factory.mktemp("versity") / "buckets"))


@pytest.fixture
def versity_bucket(versity_server: VersityServer) -> Bucket:
    """A fresh bucket in versitygw."""
    endpoint = versity_server.endpoint
    return endpoint, endpoint.create_bucket()


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> GcsServer:
    """An emulator of Google Cloud Storage, started once for each process."""
    if program() is None:
        pytest.skip("no wheel of fake-gcs-server for this machine")
    return _until_the_end(pytestconfig, GcsServer())


@pytest.fixture
def gcs_bucket(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A fresh bucket in the emulator: its URL, and the server's. Nobody proves who asks."""
    monkeypatch.setitem(conf, "gs", {"token": "anon"})
    monkeypatch.setitem(conf, "gcs", {"token": "anon"})
    monkeypatch.setenv("FSSPEC_GS_TOKEN", "anon")
    return f"gs://{gcs_server.create_bucket()}/tenant/ü 1", gcs_server.endpoint_url


@pytest.fixture(scope="session")
def azure_server(pytestconfig: pytest.Config) -> AzureServer:
    """An emulator of Azure's blobs, started once for each process."""
    if not AZURITE.exists():
        pytest.skip("azurite needs npm, and make test-deps")
    return _until_the_end(pytestconfig, AzureServer())


@pytest.fixture
def azure_container(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL in a fresh container of the emulator; the environment has the key."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection_string)
    return f"abfs://{azure_server.create_container()}/tenant/ü 1"


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> SshServer:
    """A real server of SSH, started once for each process."""
    if PROGRAM is None:
        pytest.skip("no sshd: make test-deps")
    return _until_the_end(pytestconfig, SshServer(tmp_path_factory.mktemp("ssh") / "server"))


@pytest.fixture
def sftp_directory(ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL below a fresh directory of the server; our home directory has the keys."""
    monkeypatch.setenv("HOME", str(ssh_server.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return ssh_server.create_directory()


@pytest.fixture
def hdfs_root(hdfs_server: HdfsServer) -> HdfsRoot:
    """A directory of its own in HDFS; it goes with the server."""
    return hdfs_server.root(f"/{uuid.uuid4().hex}/ü 1")


@pytest.hookimpl(tryfirst=True)  # before temporary directories go, in which servers work
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the servers that processes share."""
    with session.config.stash.get(_AT_THE_END, ExitStack()):
        pass


@pytest.fixture(scope="session")
def rgw(rgw_server: RgwServer) -> S3Endpoint:
    """Ceph RGW by plain HTTP."""
    return rgw_server.endpoint


@pytest.fixture(scope="session")
def rgw_tls(rgw_server: RgwServer) -> S3Endpoint:
    """The same server, with the same buckets, by HTTPS at 127.0.0.1 (and the same port of [::1])."""
    return rgw_server.tls_endpoint


@pytest.fixture(scope="session")
def moto_s3(aws_environment: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> S3Endpoint:
    """moto's server, started once for the run."""
    server = MotoServer()

    def start() -> str:
        server.start()
        return server.endpoint_url

    server.join(_until_the_end(pytestconfig, shared(_common(tmp_path_factory, "moto"), start, server.stop)))
    return server.endpoint


@pytest.fixture
def rgw_bucket(rgw: S3Endpoint) -> Bucket:
    """A fresh bucket in Ceph; it goes with the server."""
    return rgw, rgw.create_bucket()


@pytest.fixture
def rgw_tls_bucket(rgw_tls: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A fresh bucket in Ceph, by HTTPS; the environment names the authority."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(rgw_tls.authority))
    return rgw_tls, rgw_tls.create_bucket()


@pytest.fixture
def moto_bucket(moto_s3: S3Endpoint) -> Bucket:
    """A fresh bucket in moto; it goes with the server."""
    return moto_s3, moto_s3.create_bucket()


_MACHINE_STOOD_STILL = "waiting for the metadata lock .* owned by process 0$"
"""Nobody holds the lock and still the thread that waits does not get it: a pause of the whole machine."""


class WarningRecorder(logging.Handler):
    """Keeps the messages of level WARNING and above, formatted as `logger: message`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; called under the handler's lock, from any thread."""
        self.messages.append(f"{record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def expected_warnings() -> Iterator[list[str]]:
    """Fail the test when a tierfs logger warned of something it did not expect.

    A test that provokes a warning requests this fixture and appends a regular expression that is found
    in `logger: message`. Only this process is watched; processes that a test starts are not.
    """
    expected: list[str] = [_MACHINE_STOOD_STILL]
    recorder = WarningRecorder()
    logger = logging.getLogger("tierfs")
    logger.addHandler(recorder)
    yield expected
    logger.removeHandler(recorder)
    unexpected = [text for text in recorder.messages if not any(re.search(regex, text) for regex in expected)]
    if unexpected:
        pytest.fail("unexpected warnings:\n  " + "\n  ".join(unexpected), pytrace=False)

"""Every command of a page runs as it is written, on the machine of a reader who types the page from its beginning."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.docs.blocks import ROOT, RUN, blocks_of
from tests.docs.machine import Machine
from tests.servers.endpoint import S3Endpoint
from tests.tiering.adoption.foreign import ForeignBucket
from tests.tiering.adoption.pulsar import offloaded
from tests.tiering.adoption.test_pravega import slts

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.mount, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine without tierfs' stores, mounts and settings."""
    machine = Machine(tmp_path)
    yield machine
    machine.leave()


@pytest.fixture
def s3(machine: Machine, rgw_bucket: Bucket) -> Machine:
    """The machine, with an S3 server."""
    endpoint, bucket = rgw_bucket
    machine.replace |= {
        "s3://BUCKET/PREFIX": f"s3://{bucket}/prefix",
        "s3://NEW-BUCKET/": f"s3://new-{bucket}/",
        "http://s3.example:9000": endpoint.endpoint_url,
    }
    return machine


def test_the_quickstart_runs_as_it_is_written(s3: Machine) -> None:
    s3.file("access.log.1", b"an ERROR line\n" * 30_000)
    s3.file("access.log.2", bytes(1048576 - 14 * 30_000))
    s3.file("more.log", "more\n")
    s3.file("/srv/app/log/app.log", "a line\n")
    s3.file("/mnt/nas/other", "a disk that is mounted")
    s3.read("docs/quickstart.md")


def test_the_readme_runs_as_it_is_written(s3: Machine) -> None:
    s3.file("/var/log/app/app.log", "an ERROR line\n")
    s3.replace["s3://logs/prod"] = s3.replace["s3://BUCKET/PREFIX"]
    s3.read("README.md")


def test_the_page_of_adoption_runs_as_it_is_written(s3: Machine, rgw_bucket: Bucket) -> None:
    theirs = ForeignBucket(rgw_bucket)
    s3.replace["s3://bucket/"] = theirs.url()
    theirs.put(
        {"logs/apache/access.log": b"a line\n", "rocketmq/c/broker-a/orders/3/commitlog/seg-0/segment": b"message"}
    )
    client = rgw_bucket[0].client()
    put_offloaded(client, rgw_bucket[1], "offloaded/")
    client.close()
    s3.file("/mnt/nas/logs/db.log", "another\n")
    s3.file(f"/mnt/pravega-tier2/{slts(0, 0)}", "events")
    store = s3.store("/srv/store")
    s3.read("docs/adopt.md", {"TIERFS_STORE": str(store)})
    assert [tierfs("cat", name, store=store).out for name in ("logs/apache/access.log", "nas/db.log")] == [
        "a line\n",
        "another\n",
    ]
    assert "mq" not in tierfs("ls", store=store).out, "only a dry run"


def test_the_page_of_ledgers_runs_as_it_is_written(s3: Machine, rgw_bucket: Bucket) -> None:
    client = rgw_bucket[0].client()
    put_offloaded(client, rgw_bucket[1], "")
    client.close()
    s3.replace["s3://bucket/"] = f"s3://{rgw_bucket[1]}/"
    s3.file("today.log", "".join(f"entry {number}\n" for number in range(118)))
    s3.read("docs/ledgers.md", {"TIERFS_STORE": str(s3.store("/srv/store"))})


def put_offloaded(client: S3Client, bucket: str, prefix: str) -> None:
    """Put a ledger that a Pulsar offloaded."""
    ledger = offloaded([b"one", b"two"])
    for key, data in ledger.objects.items():
        client.put_object(Bucket=bucket, Key=f"{prefix}{key}", Body=data, Metadata=dict(ledger.said))


def test_the_page_of_recovery_runs_as_it_is_written(s3: Machine, rgw: S3Endpoint, rgw_bucket: Bucket) -> None:
    copy = rgw.create_bucket()
    s3.replace |= {"s3://B/": f"s3://{rgw_bucket[1]}/", "s3://C/": f"s3://{copy}/"}
    s3.store("/srv/lost", "--bucket", "s3://B/PREFIX", "--endpoint-url", rgw.endpoint_url)
    s3.store("/srv/lost-too", "--cold-dir", "/mnt/nas/tierfs")
    store = s3.store("/srv/store", "--bucket", "s3://B/another", "--endpoint-url", rgw.endpoint_url)
    for name in ("lost", "lost-too", "store"):
        tierfs("offload", store=s3.root / "srv" / name)
    client = rgw.client()
    for held in client.list_objects_v2(Bucket=rgw_bucket[1], Prefix="PREFIX/")["Contents"]:
        client.copy_object(Bucket=copy, Key=held["Key"], CopySource={"Bucket": rgw_bucket[1], "Key": held["Key"]})
    client.close()
    s3.read("docs/recovery.md", {"TIERFS_STORE": str(store)})


def test_the_page_of_the_standby_runs_as_it_is_written(machine: Machine) -> None:
    store = machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs")
    tierfs("offload", store=store)
    where = f"--cold-dir {machine.root}/mnt/nas/tierfs"
    machine.replace["--bucket s3://B/PREFIX --endpoint-url http://s3.example:9000"] = where
    machine.read("docs/standby.md", {"TIERFS_STORE": str(store)})
    seen = tierfs("standby", "--json", store=machine.root / "srv/standby").json
    assert (seen["taken"]["epoch"], seen["taken"]["incomplete"]) == (2, [])


@pytest.mark.timeout(120)
def test_the_page_of_the_archive_runs_as_it_is_written(machine: Machine, moto_bucket: Bucket) -> None:
    endpoint, bucket = moto_bucket
    store = machine.store("/srv/store", "--bucket", f"s3://{bucket}/logs", "--endpoint-url", endpoint.endpoint_url)
    lines = "a line that is not packed\n" * 200_000
    tierfs("append", "logs/2024/a", stdin=lines.encode(), store=store)
    tierfs("offload", store=store)
    machine.read("docs/archive.md", {"TIERFS_STORE": str(store)}, "Move objects into it")
    tierfs("evict", store=store)
    assert "is in the archive" in tierfs("cat", "logs/2024/a", store=store, check=False).err
    for section in ("Thaw", "Back"):
        machine.read("docs/archive.md", {"TIERFS_STORE": str(store)}, section)
    assert tierfs("cat", "logs/2024/a", store=store).out == lines


def test_the_pages_of_limits_the_cold_tier_and_disk_space_run_as_they_are_written(machine: Machine) -> None:
    machine.file("/etc/ssl/our-authority.pem", "")
    machine.file("today.log", "a line\n")
    machine.replace["/etc/ssl/"] = f"{machine.root}/etc/ssl/"
    machine.file("/mnt/ssd/other", "a disk that is mounted")
    env = {"TIERFS_STORE": str(machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs"))}
    machine.read("docs/limits.md", env)
    machine.read("docs/cold-tier.md", env)
    machine.read("docs/space.md", env)


def test_the_page_of_places_runs_as_it_is_written(machine: Machine) -> None:
    machine.read("docs/places.md")


def test_the_page_of_monitoring_runs_as_it_is_written(machine: Machine) -> None:
    store = machine.store("/srv/store")
    (machine.root / "mnt/logs").mkdir()
    tierfs("mount", machine.root / "mnt/logs", store=store)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        machine.replace["9150"] = str(free.getsockname()[1])
    machine.read("docs/monitoring.md", {"TIERFS_STORE": str(store)})


def test_the_pages_of_errors_and_limits_run_as_they_are_written(machine: Machine) -> None:
    env = {"TIERFS_STORE": str(machine.store("/srv/store"))}
    machine.read("docs/errors.md", env)
    machine.read("docs/limits.md", env)


def test_the_check_of_an_installation_runs_as_it_is_written(machine: Machine) -> None:
    machine.read("docs/install.md")


def test_the_page_of_followed_logs_runs_as_it_is_written(machine: Machine) -> None:
    machine.file("/var/log/app/app.log", "an ERROR line\n")
    machine.replace["tierfs follow --journal"] = "true"  # a container has no journald
    store = machine.store("/srv/store")
    machine.read("docs/follow.md", {"TIERFS_STORE": str(store)})
    assert tierfs("cat", "hosts/web1/app.log", store=store).out == "an ERROR line\n"


def test_the_page_of_operations_runs_as_it_is_written(machine: Machine) -> None:
    machine.file("app.log", "begun\nand continued\n")
    machine.file("/var/log/app/app.log-20261129", "a line\n")
    machine.store("/srv/writer")
    store = machine.store("/srv/store", "--cold-dir", "/mnt/nas/tierfs")
    tierfs("append", "logs/app", store=store, stdin=b"begun\n")
    machine.replace["/elsewhere"] = f"{machine.root}/elsewhere"
    (machine.root / "elsewhere").mkdir()
    machine.read("docs/operations.md", {"TIERFS_STORE": str(store)})
    assert (machine.root / "elsewhere/logs/app").read_text() == "begun\nand continued\n"
    assert not store.exists()


def test_a_mount_that_is_not_there_is_not_copied_and_nothing_is_said_to_be(machine: Machine) -> None:
    (line,) = (text for text in (ROOT / "docs/operations.md").read_text().splitlines() if "cp -a" in text)
    for name in ("mnt/logs", "elsewhere"):
        (machine.root / name).mkdir()
    line = line.replace("/mnt/", f"{machine.root}/mnt/").replace("/elsewhere", f"{machine.root}/elsewhere")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode != 0, done.stdout) == (True, f"{machine.root}/mnt/logs is not a mountpoint\n"), done
    assert list((machine.root / "elsewhere").iterdir()) == []


RUN_ELSEWHERE = {"docs/dataframes.md", "docs/python.md", "docs/runbook.md", "docs/tutorial.md"}
RUN_ELSEWHERE |= {f"docs/{page}.md" for page in ("spark", "spark-streams", "spark-jobs", "tables")}
"""test_dataframes, test_python, test_runbook, test_spark"""

NOT_TYPED = {
    ("docs/cold-tier.md", "tierfs config cold.endpoint_url=https://s3.new.example"),
    ("docs/places.md", "tierfs --store /srv/logs init --cold-url webhdfs://namenode.example/tierfs/logs"),
    ("docs/cold-tier.md", "tierfs config cold.storage_class=STANDARD_IA cold.tags='team=logs env=prod'"),
    ("docs/cold-tier.md", "tierfs move --to s3://new-bucket/logs --profile archive"),
}
"""First lines of blocks that need a store in several places, which tests of that command have."""

MARKERS = 25
"""Blocks of all pages that are not run: a page that readers cannot follow is none. Most of them need a second host,
systemd, a cluster or a builder of images, or install packages."""

COMMAND = re.compile(r"(\$ )?(tierfs|make|pip|git|export|mkdir|rm|cat|tail|echo)\b")


def test_every_page_with_commands_is_run_and_few_blocks_are_not() -> None:
    own = set(re.findall(r"\.read\(\"(.+?)\"", Path(__file__).read_text()))
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/design").glob("*.md")]
    markers = 0
    for path in pages:
        page = str(path.relative_to(ROOT))
        blocks = blocks_of(path.read_text())
        markers += sum(bool(block.not_run) for block in blocks)
        if any(block.language in RUN and not block.not_run for block in blocks):
            assert page in own | RUN_ELSEWHERE, f"no test reads {page}"
        for block in blocks:
            first = block.text.partition("\n")[0]
            typed = COMMAND.match(first) and not block.language and (page, first) not in NOT_TYPED
            assert not typed, f"{page}:{block.line} is a block of commands: call it `sh` or `console`"
    assert markers <= MARKERS


def test_the_page_of_the_admin_api_runs_as_it_is_written(machine: Machine) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        machine.replace["127.0.0.1:9160"] = f"127.0.0.1:{free.getsockname()[1]}"
    for name in ("store", "second"):
        (machine.root / name).mkdir()
        tierfs("-q", "init", "--cold-dir", machine.root / name, store=machine.root / "srv" / name)
    machine.read("docs/admin.md")

"""Long runs of the proof against reality: `python -m tests.reality kills --help`."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.reading.peers import ENVIRONMENT
from tests.disks import disk, failing_disk
from tests.reality import followed, kills, senders, tables
from tests.reality.acks import Drill
from tests.reality.archives import ArchiveDrill
from tests.reality.lives import Places, buckets_at, directories_in
from tests.reality.moves import MovesDrill
from tests.reality.nights import Nights
from tests.reality.outages import Outages
from tests.reality.soak import Soak
from tests.reality.standbys import Failovers
from tests.servers import quick_java
from tests.servers.rgw import RgwServer

DISK_BYTES = 200 << 20

# Of a drill of `tierfs follow`: pause between rotations of all logs, and the last system call at which it is killed,
# for each log: an append makes some three of them, and lives that are too short fall behind for good.
ROTATE_S = 1.0
MOST_CALLS_PER_LOG = 12
MOST_CALLS_OF_SERVER = 1_000


@contextmanager
def places_of(kind: str, root: Path) -> Iterator[Places]:
    """Cold tiers of a kind, for as long as the block lasts."""
    if kind == "directory":
        yield directories_in(root)
        return
    with RgwServer(root / "ceph") as server:
        os.environ.update(ENVIRONMENT)
        yield buckets_at(server.endpoint)


def run_nights(root: Path, places: Places, seed: str, count: int) -> None:
    """Print what was done on a full disk, and on one that takes no changes."""
    (mountpoint := root / "mnt").mkdir()
    with disk(root / "full", DISK_BYTES) as path:
        print(dict(Nights(path, places, seed, mountpoint).full(count)), flush=True)
    with failing_disk(root / "bad", DISK_BYTES) as bad:
        print(dict(Nights(bad.path, places, seed, mountpoint).read_only(bad, count)))


def run_follow(root: Path, modes: list[str], chosen: argparse.Namespace) -> None:
    """Print what was rotated and killed in each mode. Exits with 1 if a log has not each line once, in order."""
    failed = False
    for number, mode in enumerate(modes):
        drill = followed.run(
            root / str(number),
            mode,
            random.Random(f"{chosen.seed} {mode}"),
            count=chosen.logs,
            bytes_per_s=chosen.rate,
            every_s=ROTATE_S,
            kills=chosen.kills,
            most_calls=MOST_CALLS_PER_LOG * chosen.logs,
        )
        wrong = drill.wrong()
        failed |= bool(wrong or drill.gaps)
        lines = sum(drill.rotated.numbers)
        print(f"{mode}: {lines} lines, {drill.rotated.rotations} rotations, {chosen.kills} kills", flush=True)
        print("\n".join([*wrong[:20], drill.gaps]), flush=True)
    sys.exit(failed)


def run_senders(root: Path, chosen: argparse.Namespace) -> None:
    """Print what was rotated and killed, or the figures of one sender. Exits with 1 if a line is not there once."""
    if chosen.measure:
        print("local:", senders.measure(root / "local", is_sent=False).text(), flush=True)
        print("sent:", senders.measure(root / "sent", is_sent=True).text())
        return
    drill = senders.run(
        root,
        random.Random(chosen.seed),
        hosts=chosen.senders,
        logs=chosen.logs,
        bytes_per_s=chosen.rate,
        every_s=ROTATE_S,
        kills=chosen.kills,
        most_calls=MOST_CALLS_OF_SERVER,
    )
    wrong = drill.wrong()
    lines = sum(drill.logs.numbers)
    print(f"{lines} lines, {drill.logs.rotations} rotations, {drill.server.kills} kills, {drill.killed} of senders")
    print("\n".join(wrong[:20]))
    sys.exit(bool(wrong))


def run_tables(root: Path, chosen: argparse.Namespace) -> None:
    """Print what was killed, and the lines, of a table of each format. Exits with 1 if a row is not there once."""
    failed = False
    (java := root / "java").mkdir()
    os.environ.update(quick_java.install(java))
    for kind in chosen.format or tables.FORMATS:
        drill = tables.TableDrill(root / kind, kind, random.Random(f"{chosen.seed} {kind}")).run(chosen.kills)
        failed |= bool(drill.wrong)
        print(drill.told(), flush=True)
        print("\n".join(drill.wrong[:20]), flush=True)
    sys.exit(failed)


def parsed() -> argparse.Namespace:
    """The words of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.reality")
    parser.add_argument("--seed", default=str(random.randrange(2**32)))
    parser.add_argument("--place", choices=["directory", "rgw"], default="directory")
    subjects = parser.add_subparsers(dest="subject", required=True)
    killing = subjects.add_parser("kills", help="kill commands at their changing system calls")
    killing.add_argument("--command", action="append", choices=list(kills.ON_S3), help="all, unless it is given")
    times = killing.add_mutually_exclusive_group()
    times.add_argument("--kills", type=int, default=10, help="of each command, at calls that the seed draws (10)")
    times.add_argument("--every", action="store_true", help="kill at every call")
    times.add_argument("--at", type=int, action="append", help="kill at this call")
    filling = subjects.add_parser("full", help="run commands on a disk that is nearly full")
    filling.add_argument("--rounds", type=int, default=10, help="of all commands (10)")
    acking = subjects.add_parser("acks", help="kill appenders with ack=cold, the holder, and the host with its disk")
    acking.add_argument("--kills", type=int, default=20, help="in all (20)")
    archiving = subjects.add_parser("archives", help="move objects to an archive and back, with kills")
    archiving.add_argument("--second", choices=["directory"], help="to a second place; else to a class of Ceph RGW")
    archiving.add_argument("--kills", type=int, default=50, help="in all (50)")
    archiving.add_argument("--objects", type=int, default=1000, help="in all (1000)")
    failing = subjects.add_parser("standbys", help="failovers in a row under load, with kills of both sides")
    failing.add_argument("--failovers", type=int, default=10, help="in all (10)")
    subjects.add_parser("outages", help="cut the ways of an owner and its standby to Ceph RGW")
    moving = subjects.add_parser("moves", help="move the cold tier beside everything, with kills")
    moving.add_argument("--moves", type=int, default=50, help="in all (50); with --place rgw both ways")
    nights = subjects.add_parser("nights", help="fill the disk, and let it fail, under everything that runs")
    nights.add_argument("--nights", type=int, default=3, help="of each kind (3)")
    following = subjects.add_parser("follow", help="kill a follower of logs that the real logrotate rotates")
    following.add_argument("--mode", action="append", choices=list(followed.MODES), help="all, unless it is given")
    following.add_argument("--kills", type=int, default=25, help="of each mode (25)")
    following.add_argument("--logs", type=int, default=500, help="in all (500)")
    following.add_argument("--rate", type=int, default=20_000_000, help="bytes a second of all logs (20,000,000)")
    sending = subjects.add_parser("senders", help="kill a server that hosts send their rotated logs to")
    sending.add_argument("--kills", type=int, default=20, help="of the server (20)")
    sending.add_argument("--senders", type=int, default=20, help="in all (20)")
    sending.add_argument("--logs", type=int, default=5, help="of each sender (5)")
    sending.add_argument("--rate", type=int, default=2_000_000, help="bytes a second of all logs (2,000,000)")
    sending.add_argument("--measure", action="store_true", help="measure one sender instead")
    following = subjects.add_parser("tables", help="kill all that a table which follows segments needs")
    following.add_argument("--kills", type=int, default=10, help="of each format (10)")
    following.add_argument("--format", action="append", choices=tables.FORMATS, help="all, unless it is given")
    soaking = subjects.add_parser("soak", help="a mount that is never at rest, over Ceph RGW that fails")
    soaking.add_argument("--seconds", type=int, default=1800)
    return parser.parse_args()


def main() -> None:
    chosen = parsed()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as root, places_of(chosen.place, Path(root)) as places:
        if chosen.subject == "soak":
            with RgwServer(Path(root) / "ceph") as server:
                os.environ.update(ENVIRONMENT)
                seen = Soak(Path(root), server.endpoint, chosen.seed).run(chosen.seconds)
            print(seen.text(chosen.seconds))
            sys.exit(bool(seen.failures()))
        if chosen.subject == "outages":
            with RgwServer(Path(root) / "ceph") as server:
                os.environ.update(ENVIRONMENT)
                print(dict(Outages(Path(root), server.endpoint).run()))
            return
        if chosen.subject == "acks":
            print(dict(Drill(Path(root), places, chosen.seed).run(chosen.kills)))
            return
        if chosen.subject == "archives":
            second = directories_in(Path(root))() if chosen.second else None
            print(dict(ArchiveDrill(Path(root), places, chosen.seed, chosen.objects, second).run(chosen.kills)))
            return
        if chosen.subject == "standbys":
            print(dict(Failovers(Path(root), places, chosen.seed).run(chosen.failovers)))
            return
        if chosen.subject == "moves":
            others = directories_in(Path(root)) if chosen.place == "rgw" else None
            print(
                dict(MovesDrill(Path(root), places, chosen.seed, others, mounts=True, spark=True).moves(chosen.moves))
            )
            return
        if chosen.subject == "nights":
            run_nights(Path(root), places, chosen.seed, chosen.nights)
            return
        if chosen.subject == "follow":
            run_follow(Path(root), chosen.mode or list(followed.MODES), chosen)
            return
        if chosen.subject == "tables":
            run_tables(Path(root), chosen)
        if chosen.subject == "senders":
            run_senders(Path(root), chosen)
            return
        if chosen.subject == "full":
            with disk(Path(root) / "disk", DISK_BYTES) as path:
                print(f"{kills.run_full(path, places, chosen.seed, chosen.rounds)} commands had too little room")
            return
        for command in chosen.command or kills.COMMANDS:
            (path := Path(root) / command).mkdir()
            drawn = 0 if chosen.every or chosen.at else chosen.kills
            done = kills.run(path, places, command, chosen.seed, drawn, at=chosen.at or ())
            print(f"{command}: {done} kills", flush=True)


if __name__ == "__main__":
    main()

"""A real HDFS, name node and data node in one JVM: starts in about 4 s.

    python -m tests.servers.hdfs_server

fetches its jars with Maven and compiles its program, once (`make test-deps`).
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.process import ServerError, ServerProcess
from tests.servers.quick_java import OPTIONS
from tests.servers.rgw import free_ports

SOURCES = Path(__file__).with_name("hdfs")
KEPT = Path(__file__).parents[2] / ".venv" / "hdfs"
"""What was prepared: jars, and the program's classes."""

JARS, CLASSES, DONE = KEPT / "jars", KEPT / "classes", KEPT / "done"
CLASS_PATH = f"{CLASSES}:{JARS}/*"
PORTS = 5
_PREPARE_S = 600

# Jersey's JAXB defines classes by reflection.
JAVA = ["java", "-Xmx512m", *OPTIONS.split(), "--add-opens=java.base/java.lang=ALL-UNNAMED"]


class HdfsServer(ServerProcess):
    """A single-node HDFS that keeps its files under `directory`; started again, it has them still."""

    def __init__(self, directory: Path) -> None:
        super().__init__([])
        self._directory = directory
        self._port = 0

    def start(self) -> None:
        """Start at the ports it had, or at free ones."""
        if not DONE.exists():
            raise ServerError(f"the jars of HDFS are not there: make test-deps (it needs {' and '.join(TOOLS)})")
        self._port = self._port or free_ports(PORTS)
        log = self._directory.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        program = [*JAVA, "-cp", CLASS_PATH, "Hdfs", str(self._directory), str(self._port)]
        # Its log is not read by anybody, and would fill the pipe.
        self._command = ["sh", "-c", 'exec "$@" 2>> "$0"', str(log), *program]
        super().start()

    @property
    def address(self) -> str:
        """Both of its URLs, for `join`."""
        return " ".join([self.endpoint_url, *self.words])

    def root(self, path: str) -> HdfsRoot:
        """Return the URLs of a path."""
        return HdfsRoot(f"webhdfs://{urlsplit(self.endpoint_url).netloc}{path}", f"{self.words[0]}{path}")


@dataclass(frozen=True)
class HdfsRoot:
    """One place by its two URLs."""

    webhdfs: str
    hdfs: str


TOOLS = ("mvn", "javac")


def missing_tools() -> list[str]:
    """Return the programs without which nothing can be prepared."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def prepare(sources: Path, kept: Path) -> None:
    """Fetch the jars of a pom.xml into `kept/jars`, and compile the programs beside it into `kept/classes`."""
    shutil.rmtree(kept, ignore_errors=True)
    fetch = ["mvn", "-q", "-B", "-f", str(sources / "pom.xml"), "dependency:copy-dependencies"]
    programs = map(str, sources.glob("*.java"))
    compile_ = ["javac", "-cp", f"{kept}/jars/*", "-d", str(kept / "classes"), *programs]
    for command in ([*fetch, "-DincludeScope=runtime", f"-DoutputDirectory={kept}/jars"], compile_):
        subprocess.run(command, check=True, timeout=_PREPARE_S)


def main() -> None:
    """Fetch the jars and compile the program; nothing where a tool is missing."""
    if missing_tools():
        return
    prepare(SOURCES, KEPT)
    for name in ("hdfs", "datanode", "static"):  # Hadoop's web pages, of which only WebHDFS is used
        pages = CLASSES / "webapps" / name / "WEB-INF"
        pages.mkdir(parents=True)
        (pages / "web.xml").write_text("<web-app/>\n")
    DONE.touch()


if __name__ == "__main__":
    main()

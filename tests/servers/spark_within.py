"""Spark's standalone cluster within a JVM that is there, as its own `local-cluster`: only executors are processes.

Master and workers speak with each other, and with drivers, by TCP as they do on machines of their own; each would
start for 3 s of a processor. tests/servers/spark_cluster.py has them as daemons, which drills kill.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.servers.process import ServerError
from tests.servers.spark_cluster import READY_S, WORKER_MEMORY_MIB, WORKERS, living_workers

_STEP_S = 0.02


class ClusterWithin:
    """A master and its workers with their files under `directory`; a worker's are in `worker0` and so on."""

    def __init__(self, jvm: Any, directory: Path) -> None:
        """`jvm`: py4j's view of it."""
        self._jvm, self.directory = jvm, directory
        self._environments: list[Any] = []
        self.master = ""
        """The URL for sessions, `spark://HOST:PORT`, once it runs."""

    def start(self) -> None:
        """Start, and return once all workers are registered."""
        deploy = self._jvm.org.apache.spark.deploy
        conf = self._jvm.org.apache.spark.SparkConf(False).set("spark.master.rest.enabled", "false")
        master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
        environment, port = (master.productElement(number) for number in range(2))  # of a tuple of Scala
        self._environments.append(environment)
        self.master = f"spark://127.0.0.1:{environment.address().port()}"
        masters = self._jvm.org.apache.spark.util.Utils.parseStandaloneMasterUrls(self.master)
        option = self._jvm.scala.Option
        for number in range(WORKERS):
            # Addresses of their own: Spark runs a second attempt of a slow task on another host only.
            host, work = f"127.0.0.{number + 1}", str(self.directory / f"worker{number}")
            where = (host, 0, 0, 1, WORKER_MEMORY_MIB, masters, work, option.apply(number), conf, option.apply(None))
            self._environments.append(deploy.worker.Worker.startRpcEnvAndEndpoint(*where))
        deadline_s = time.monotonic() + READY_S
        while living_workers(f"http://127.0.0.1:{port}") < WORKERS:
            if time.monotonic() > deadline_s:
                raise ServerError(f"spark-within: not ready within {READY_S} s")
            time.sleep(_STEP_S)

    def stop(self) -> None:
        """End them, the workers first; idempotent. Executors end with their worker."""
        while self._environments:
            environment = self._environments.pop()
            environment.shutdown()
            environment.awaitTermination()

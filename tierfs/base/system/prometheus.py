"""Metrics in Prometheus' form: a registry of all of the table, its text, and the server and the file that show it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierfs.base.system.addresses import LOOPBACK, is_loopback, parse_address
from tierfs.base.system.metrics import Count, MetricKind, MetricName, Sampled
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.base.words.names import printable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
# Returns the values of sampled metrics as of now; those it leaves out are not shown.
Sample = Callable[[], Mapping[MetricName, Sampled]]

# Longest wait of an exposition for another one: a cold tier in a directory may hang (a guess).
_WAIT_S = 2.0

_EXAMPLE = "127.0.0.1:9150"


def parse_listen(address: str, *, public: bool) -> tuple[str, int]:
    """Return the host and the port of `metrics.listen`.

    Raises InvalidRequest, also for an address that other machines reach, unless `public`.
    """
    host, port = parse_address("metrics.listen", address, _EXAMPLE, host=LOOPBACK)
    if not (public or is_loopback(host)):
        raise InvalidRequest(
            f"metrics.listen = {printable(address)} is a public address: other machines could read the metrics",
            remedy="to permit it: metrics.public = true; or listen at 127.0.0.1",
        )
    return host, port


class Metrics:
    """A registry of its own with every metric of the table. prometheus-client is imported on construction."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

        # A fifth of all samples, which nothing reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = CollectorRegistry()
        kept = [name for name in MetricName if name.kind is not MetricKind.SAMPLED]
        self._metrics: dict[str, Any] = {name: _registered(name, self.registry) for name in kept}
        self._children: dict[tuple[object, ...], Any] = {}
        self._sampler = _Sampler()
        self.registry.register(self._sampler)
        ProcessCollector(registry=self.registry)

    def count(self, name: MetricName, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._child(name, labels).inc(amount)

    def counter(self, name: MetricName, **labels: str) -> Count:
        """Return a function that adds to one counter."""
        increase: Count = self._child(name, labels).inc
        return increase

    def observe(self, name: MetricName, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self._child(name, labels).observe(value)

    def set_gauge(self, name: MetricName, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(name, labels).set(value)

    def sample_with(self, sample: Sample) -> None:
        """Ask `sample` for the values of sampled metrics from now on; it is called once per exposition."""
        self._sampler.sample = sample

    def values(self, name: MetricName) -> dict[tuple[str, ...], float]:
        """Return the values of a counter, by its labels' values in the table's order."""
        return {
            tuple(sample.labels[label] for label in name.labels): sample.value
            for family in self._metrics[name].collect()
            for sample in family.samples
            if sample.name == name
        }

    def exposition(self) -> bytes:
        """Return everything in Prometheus text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def serve(self, address: str, *, public: bool = False) -> Callable[[], None] | None:
        """Serve the text at HOST:PORT, or a PORT of this machine, from a thread; return what ends that.

        None while another process has the address. Raises as `parse_listen`, and Unavailable for an address that is not
        this machine's now.
        """
        from prometheus_client import start_http_server

        host, port = parse_listen(address, public=public)
        try:
            server, thread = start_http_server(port, host, registry=self.registry)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                return None
            remedy = "set metrics.listen to an address of this machine"
            raise Unavailable(f"cannot serve metrics at {address}: {exc.strerror or exc}", remedy=remedy) from exc

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end

    def write(self, path: Path) -> None:
        """Write the text to a file, which is replaced as a whole. Raises OSError."""
        from prometheus_client import write_to_textfile

        write_to_textfile(str(path), self.registry)

    def _child(self, name: str, labels: dict[str, str]) -> Any:
        if not labels:
            return self._metrics[name]
        # The vendor's own lookup takes half of a count's time (measured: 1.7 us with it, 0.7 us without).
        key = (name, *labels.items())
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._metrics[name].labels(**labels)
        return child


def _nothing() -> Mapping[MetricName, Sampled]:
    return {}


class _Sampler:
    """Makes the gauges of sampled metrics at each exposition."""

    def __init__(self) -> None:
        self.sample: Sample = _nothing
        self._lock = threading.Lock()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the names alone, for the registry."""
        return self._families({})

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current values. Raises Unavailable while another sample hangs: else each would keep a thread."""
        if not self._lock.acquire(timeout=_WAIT_S):
            raise Unavailable("the previous reading of the store's metrics has not ended")
        try:
            values = self.sample()
        finally:
            self._lock.release()
        return self._families(values)

    def _families(self, values: Mapping[MetricName, Sampled]) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        for name in MetricName:
            if name.kind is MetricKind.SAMPLED:
                family = GaugeMetricFamily(name, name.help, labels=name.labels)
                value = values.get(name)
                for label, number in value.items() if isinstance(value, Mapping) else ():
                    family.add_metric([label], number)
                if value is not None and not isinstance(value, Mapping):
                    family.add_metric([], value)
                yield family


def _registered(name: MetricName, registry: CollectorRegistry) -> Any:
    from prometheus_client import Counter, Gauge, Histogram

    if name.kind is MetricKind.HISTOGRAM:
        return Histogram(name, name.help, name.labels, registry=registry, buckets=name.buckets)
    vendor = Counter if name.kind is MetricKind.COUNTER else Gauge
    return vendor(name, name.help, name.labels, registry=registry)

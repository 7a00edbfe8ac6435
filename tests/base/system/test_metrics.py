"""Counters that are kept, values that are computed at each exposition."""

from __future__ import annotations

import pytest

from tests.servers.rgw import free_ports
from tierfs.base.system.metrics import MetricKind, MetricName, NullMetrics
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import InvalidRequest


def test_a_kept_counter_and_a_named_one_are_the_same() -> None:
    metrics = Metrics()
    count = metrics.counter(MetricName.READ_BYTES, tier="cold")
    assert metrics.values(MetricName.READ_BYTES) == {("cold",): 0}
    count(5)
    metrics.count(MetricName.READ_BYTES, 7, tier="cold")
    metrics.count(MetricName.READ_BYTES, 1, tier="local")
    assert metrics.values(MetricName.READ_BYTES) == {("cold",): 12, ("local",): 1}
    NullMetrics().counter(MetricName.READ_BYTES, tier="cold")(5)


def test_labels_are_told_apart_and_come_in_the_tables_order() -> None:
    metrics = Metrics()
    metrics.count(MetricName.FUSE_ERRORS, operation="read", errno="EIO")
    metrics.count(MetricName.FUSE_ERRORS, errno="EIO", operation="read")
    metrics.count(MetricName.FUSE_ERRORS, errno="EIO", operation="open")
    assert metrics.values(MetricName.FUSE_ERRORS) == {("read", "EIO"): 2, ("open", "EIO"): 1}


def test_sampled_metrics_show_what_is_known_now() -> None:
    metrics, known = Metrics(), {MetricName.HOLDER: 1.0}
    assert b"\ntierfs_holder " not in metrics.exposition()
    metrics.sample_with(lambda: known)
    assert b"\ntierfs_holder 1.0\n" in metrics.exposition()
    assert b"\ntierfs_offload_backlog_bytes " not in metrics.exposition()
    known[MetricName.BACKLOG_BYTES] = 17
    assert b"\ntierfs_offload_backlog_bytes 17.0\n" in metrics.exposition()


def test_every_metric_is_shown_and_tells_no_names() -> None:
    exposition = Metrics().exposition().decode()
    for name in MetricName:
        assert name.startswith("tierfs_")
        assert (name.kind is MetricKind.COUNTER) == name.endswith("_total")
        assert name.help.endswith(".")
        assert not {"segment", "name", "object", "path"} & set(name.labels)
        assert f"# HELP {name} {name.help}" in exposition


def test_a_sampled_metric_has_a_value_for_each_label() -> None:
    metrics = Metrics()
    metrics.sample_with(lambda: {MetricName.TIER_BYTES: {"local": 3, "cold": 4}})
    text = metrics.exposition()
    assert b'\ntierfs_tier_bytes{tier="local"} 3.0\ntierfs_tier_bytes{tier="cold"} 4.0\n' in text
    assert b"\nprocess_resident_memory_bytes " in text


def test_an_address_is_served_once_and_by_this_machine_alone() -> None:
    port = free_ports(1)
    end = Metrics().serve(str(port))
    assert end is not None
    try:
        assert Metrics().serve(f"127.0.0.1:{port}") is None
    finally:
        end()
    with pytest.raises(InvalidRequest, match="public address") as caught:
        Metrics().serve(f"0.0.0.0:{port}")
    assert "metrics.public = true" in (caught.value.remedy or "")
    end = Metrics().serve(f"0.0.0.0:{port}", public=True)
    assert end is not None
    end()

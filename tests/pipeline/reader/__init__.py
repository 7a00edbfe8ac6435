"""Scans: snapshots, partitions, and what executors read of them."""

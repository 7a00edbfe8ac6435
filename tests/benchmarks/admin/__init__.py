"""Benchmarks of the admin API: appends over HTTP, and strangers."""

"""Measure Spark over a store: by path, by name, by URL."""

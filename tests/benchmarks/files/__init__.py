"""Benchmarks of many small files: what people do with them all day, and how they are made and moved."""

"""Benchmarks of writers that stay: at a rate for minutes, a thousand at once, and small appends of many threads."""

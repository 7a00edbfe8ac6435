"""Resolving, fetching, caching, reading."""

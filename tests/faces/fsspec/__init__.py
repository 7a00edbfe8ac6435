"""Segments as files of fsspec."""

"""Tests of tierfs.metadata."""

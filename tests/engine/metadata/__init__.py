"""Tests of tierfs.engine.metadata."""

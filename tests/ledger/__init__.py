"""Tests of their layer."""

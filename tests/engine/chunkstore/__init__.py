"""Tests of what is particular to one provider or wrapper of chunk storage."""

"""Tests of what is particular to one provider or decorator of chunk storage."""

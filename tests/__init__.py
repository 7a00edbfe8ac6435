"""Tests by layer; servers/ holds the S3 servers they start, conftest.py the fixtures they share."""

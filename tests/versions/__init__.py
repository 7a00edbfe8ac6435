"""Stores and buckets written by other versions of tierfs."""

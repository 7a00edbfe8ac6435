"""Compare reading with raw GETs and with other mounts of S3."""

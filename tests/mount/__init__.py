"""Real mounts, real tools."""

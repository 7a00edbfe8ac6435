"""Real Spark on real mounts."""

"""fsck: what it finds, what it mends, what it leaves alone."""

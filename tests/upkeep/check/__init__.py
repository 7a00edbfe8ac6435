"""`tierfs check`: what it finds, what it mends, what it leaves alone."""

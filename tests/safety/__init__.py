"""Lines whose loss would destroy or falsify bytes, and that no test of their room notices: each at its boundary."""

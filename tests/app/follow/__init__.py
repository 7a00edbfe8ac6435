"""Following files: the names and the order of rotation, and every line once."""

"""Parts of the mount alone, and its log."""

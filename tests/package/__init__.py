"""The Debian package in a bare Debian: nothing else is installed there."""
